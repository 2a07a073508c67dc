"""Runs the code that reads files of strangers in a process that can reach nothing else."""
