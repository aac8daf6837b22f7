"""Batches before they are fed: whether they are what a program takes, and those that are not full."""
