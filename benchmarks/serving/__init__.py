"""A server under load, and for long."""
