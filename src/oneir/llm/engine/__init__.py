"""The engine: many requests share the steps of one model, and the pages of its cache."""
