"""The memory that a program needs on one core, counted from its plan, and the check that this memory is available."""
