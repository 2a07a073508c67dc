"""What jobs and tasks are, without I/O, clock or database."""
