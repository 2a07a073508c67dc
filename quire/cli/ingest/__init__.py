"""`quire ingest`: the command, its progress view, its remote and watch modes."""
