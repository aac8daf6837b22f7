"""Objectives: the tasks that a model learns from text, and the examples of each."""
