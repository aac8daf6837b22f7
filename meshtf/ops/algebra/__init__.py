"""Sums and products, and what they are made of: broadcasting, elementwise work, contractions."""
