"""Serving: many generations run at once on one model, and join or leave at every step. An HTTP server gives access."""
