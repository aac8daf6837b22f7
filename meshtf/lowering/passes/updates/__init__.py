"""Passes over the updates of variables."""
