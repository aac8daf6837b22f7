"""Batches before they are fed: checks that a program can take them, and batches that are not full."""
