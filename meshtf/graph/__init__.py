"""Graphs over named dimensions: plain Python on names and sizes, without TensorFlow operations or devices."""
