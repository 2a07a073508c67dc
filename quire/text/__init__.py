"""Cuts text into pieces, finds its language and words, and turns it into vectors."""
