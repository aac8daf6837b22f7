"""Speculative decoding: a smaller model drafts tokens, and the model checks several of them in one step."""
