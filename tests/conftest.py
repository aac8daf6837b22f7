"""The whole suite runs with sixteen virtual CPUs."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

from meshtf.mesh_impl.virtual_cpus import virtual_cpus

virtual_cpus(16)
