"""Variables, their initializers, and assignments."""
