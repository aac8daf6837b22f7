"""Objectives: what a model is asked to do with text, and the examples that ask it."""
