"""Emits plans as programs: TensorFlow programs for devices, and XLA programs for PJRT."""
