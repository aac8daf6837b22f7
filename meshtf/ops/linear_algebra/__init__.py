"""Matrices over two named dimensions."""
