"""The way out to TensorFlow."""
