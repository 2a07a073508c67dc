"""Downloads: resume, retry and verification, shared by every remote source."""
