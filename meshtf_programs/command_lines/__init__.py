"""What users may write behind the name of each program, and its help: told before TensorFlow is imported."""
