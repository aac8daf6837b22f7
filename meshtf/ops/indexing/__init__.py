"""Elements by their index."""
