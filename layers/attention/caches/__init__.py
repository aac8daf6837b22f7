"""The keys and values of earlier tokens, for decoding."""
