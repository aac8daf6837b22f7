"""The emission of plans as programs: TensorFlow's for devices, and XLA's for what PJRT runs."""
