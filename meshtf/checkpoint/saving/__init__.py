"""Saves checkpoints in the background, and from several processes together."""
