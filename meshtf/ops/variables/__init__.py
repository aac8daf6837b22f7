"""Variables, and what they start with."""
