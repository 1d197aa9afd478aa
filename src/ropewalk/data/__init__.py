"""The model that the package carries."""
