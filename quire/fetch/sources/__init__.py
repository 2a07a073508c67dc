"""Sources: where files are listed and read from, one module each."""
