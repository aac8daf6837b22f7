"""Runs: the folder of a training, its storage, how a run is resumed, and how signals stop it."""
