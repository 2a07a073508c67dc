"""Invariants of the stored data, the queries that check them, and repair."""
