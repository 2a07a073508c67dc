"""Spreadsheets and CSV."""
