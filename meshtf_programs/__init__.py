"""The start of meshtf's programs, before TensorFlow is imported: this package imports nothing but Python's library.

The plugin of mypy, which no program imports, imports mypy.
"""
