"""Embedders: texts into vectors."""
