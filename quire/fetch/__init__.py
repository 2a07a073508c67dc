"""Lists sources, downloads files and stores them as blobs."""
