"""How meshtf's programs start, before TensorFlow is imported: this package imports nothing but Python's library."""
