"""Encodings of positions: embeddings, rotations, and biases by distance."""
