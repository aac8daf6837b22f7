"""Operation classes. Programs derive some of them, which work on slices, and call others."""
