"""What runs when a session runs, or at once: programs, updates, and the values that they start from."""
