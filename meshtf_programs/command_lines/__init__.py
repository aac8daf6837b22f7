"""The command lines of all programs, and their help. They are read before TensorFlow is imported."""
