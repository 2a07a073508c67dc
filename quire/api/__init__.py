"""The REST API: one module a resource; `frame.build` puts them together."""
