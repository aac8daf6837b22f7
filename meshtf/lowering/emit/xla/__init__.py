"""Programs that XLA compiles as a whole, and that PJRT runs."""
