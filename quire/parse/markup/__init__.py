"""HTML, Markdown and plain text."""
