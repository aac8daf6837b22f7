"""Files of tensors that other programs read and write."""
