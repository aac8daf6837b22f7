"""Operation classes: those that programs derive, which work on slices, and those that programs call."""
