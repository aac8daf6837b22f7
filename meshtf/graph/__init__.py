"""Graphs over named dimensions: pure Python on names and sizes, no TensorFlow op and no device."""
