"""Documents, their generations and pages: admission, indexing, failures and garbage collection."""
