"""Benchmarks of ingestion and search."""
