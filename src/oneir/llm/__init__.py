"""Large language models: files, families, engine and server."""
