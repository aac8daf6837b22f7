"""Tests of a server under heavy load, and over a long time."""
