"""Layouts that programs find, and plan."""
