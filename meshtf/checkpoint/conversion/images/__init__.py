"""Image models of other libraries."""
