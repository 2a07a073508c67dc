"""Word documents and presentations."""
