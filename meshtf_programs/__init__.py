"""Starts meshtf's programs before TensorFlow is imported. This package imports only Python's standard library.

The exception is the mypy plugin, which no program imports.
"""
