"""TensorFlow's collective runtime, on virtual CPUs and GPUs."""
