"""From a plan to programs: TensorFlow's for devices, XLA's for TPUs."""
