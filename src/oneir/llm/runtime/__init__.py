"""Models as compiled programs: loading, and steps on a cache in pages."""
