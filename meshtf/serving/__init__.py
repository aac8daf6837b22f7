"""Serving: many generations at once, and the HTTP server before them."""
