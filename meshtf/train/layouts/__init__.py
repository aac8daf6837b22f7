"""Finding the layout of a configured training."""
