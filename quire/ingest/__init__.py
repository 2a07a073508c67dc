"""The job kinds that take documents in."""
