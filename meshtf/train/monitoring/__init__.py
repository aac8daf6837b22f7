"""What a run shows: progress, metrics, curves."""
