"""Benchmarks of the API and the dashboard."""
