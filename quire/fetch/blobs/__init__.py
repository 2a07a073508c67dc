"""Blob storage: files stored under their SHA-256, in a folder or a bucket."""
