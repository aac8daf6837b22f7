"""The operations by which values enter a graph."""
