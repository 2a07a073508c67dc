"""Reads files: what they are, their pages, words and pictures. No database."""
