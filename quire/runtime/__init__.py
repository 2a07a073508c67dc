"""Runs tasks: the worker, its child processes, the scheduler and the supervisor."""
