"""Describes the machine and the versions with which a benchmark ran."""

from __future__ import annotations

import os
import platform

import tensorflow as tf


def machine() -> str:
    """One line for the head of a table."""
    return f"{_processor()}, {os.cpu_count()} cores; TensorFlow {tf.__version__}, Python {platform.python_version()}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
