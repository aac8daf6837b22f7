"""AmoebaNet-D."""
