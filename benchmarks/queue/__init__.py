"""Benchmarks of the queue."""
