"""The REST API: one module a resource; `app.create_api` puts them together."""
