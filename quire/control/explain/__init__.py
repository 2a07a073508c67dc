"""Explains what a job, a task or a document is waiting for, and what happens next."""
