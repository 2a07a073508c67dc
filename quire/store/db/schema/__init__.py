"""Table definitions, one module a part of the store."""
