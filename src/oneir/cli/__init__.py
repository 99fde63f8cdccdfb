"""The command line: `oneir show`, `oneir compile` and `oneir run` for a user's own model."""
