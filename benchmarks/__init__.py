"""Benchmarks: measure Quire on this machine, compared with a bare loop in the same run.

They use temporary folders and databases, and remove them at the end. docs/bench.md describes each
measurement and has figures.
"""
