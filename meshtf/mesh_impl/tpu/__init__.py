"""XLA's collectives, and the torus of a TPU."""
