"""Lowers a graph with a layout to a plan, and a plan to one per-core TensorFlow program."""
