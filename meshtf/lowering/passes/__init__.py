"""Passes change layouts before planning, or a plan after it. Results stay as they are."""
