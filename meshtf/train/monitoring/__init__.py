"""The display of a run: progress, metrics, curves."""
