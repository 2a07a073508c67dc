"""What a user can ask for. One function is one verb; it opens its own transaction."""
