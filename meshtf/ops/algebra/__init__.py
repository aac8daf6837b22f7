"""Sums and products, and their building blocks: broadcasting, elementwise work, contractions."""
