"""Copies an installation from SQLite to PostgreSQL."""
