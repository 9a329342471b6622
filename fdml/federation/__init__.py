"""Members, keys and whole runs."""
