"""Benchmarks of drafts for another model."""
