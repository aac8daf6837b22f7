"""Serving: many generations run at once on one model, and join and leave at every step; an HTTP server before them."""
