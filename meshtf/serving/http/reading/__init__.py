"""Reads and checks the bodies of requests."""
