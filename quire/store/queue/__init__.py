"""The queue: jobs, tasks, leases and their transitions. It knows nothing about documents."""
