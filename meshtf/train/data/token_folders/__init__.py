"""Tokens on disk: made once, read by row at random."""
