"""The layout of each tensor, and the padding of slices where mesh axes do not divide a dimension."""
