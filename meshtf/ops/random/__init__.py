"""Random tensors, the same under every layout."""
