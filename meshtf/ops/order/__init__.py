"""Which element is the largest, and elements in order."""
