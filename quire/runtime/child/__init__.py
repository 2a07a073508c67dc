"""Child processes, in which handlers run: their pool, their limits, and a handler's context."""
