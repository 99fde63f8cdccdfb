"""Language models: read from files, compiled, and served to many users at once."""
