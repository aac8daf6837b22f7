"""Models for images of other libraries."""
