"""Request and response models: the JSON that the OpenAPI document describes."""
