"""Reading a checkpoint: its values, and restoring them into variables."""
