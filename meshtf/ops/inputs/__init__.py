"""Where values enter a graph."""
