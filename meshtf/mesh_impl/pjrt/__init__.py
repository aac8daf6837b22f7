"""Programs on accelerators that PJRT drives: GPUs, TPUs, and virtual ones on this machine's processors."""
