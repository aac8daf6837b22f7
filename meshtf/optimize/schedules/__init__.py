"""Schedules of learning rates and other rates, and the step counter that they read."""
