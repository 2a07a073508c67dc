"""The database itself: engines, dialects, bulk writes, schema and migrations."""
