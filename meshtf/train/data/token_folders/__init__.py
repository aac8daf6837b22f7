"""Tokens on disk: they are made once, and rows of them are read at random."""
