"""Read models for people: lists, counts and details. Nothing here writes."""
