"""Moves values from one layout to another: routes, padded slices, and windows that reach into neighbours' slices."""
