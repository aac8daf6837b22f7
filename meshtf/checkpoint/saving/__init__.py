"""Saving a checkpoint: in the background, and by several processes together."""
