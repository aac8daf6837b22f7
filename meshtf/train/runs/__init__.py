"""Runs: the folder of a training, where it is kept, how it is taken up again, and how it is asked to stop."""
