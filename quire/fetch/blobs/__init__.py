"""Blob storage: bytes kept under their SHA-256, in a folder or in a bucket."""
