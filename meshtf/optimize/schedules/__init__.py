"""Schedules of rates, and the counter of steps that they are read at."""
