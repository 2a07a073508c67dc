"""Explain what a job, a task or a document waits for, and what happens next."""
