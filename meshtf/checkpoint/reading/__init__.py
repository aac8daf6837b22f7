"""Reads checkpoints, and restores their values into variables."""
