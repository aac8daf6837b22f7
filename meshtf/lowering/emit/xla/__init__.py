"""Emits programs that XLA compiles as a whole and PJRT runs."""
