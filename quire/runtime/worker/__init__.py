"""The worker process: the loop that claims, renews and settles; liveness and health."""
