"""The sample documents that `quire demo` ingests."""
