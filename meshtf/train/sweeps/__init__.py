"""Sweeps: many trainings that differ in a few bindings, side by side in one folder."""
