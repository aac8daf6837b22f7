"""Tells whether this machine has a GPU, and its name."""

from __future__ import annotations

import shutil
import subprocess

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DeviceError


def why_no_gpu(virtual: int | None) -> str | None:
    """Opens the GPUs, or `virtual` virtual ones. Returns None, or the reason why there is no GPU."""
    if virtual is not None:
        mtf.virtual_gpus(virtual)
    tf.config.set_visible_devices([], "GPU")  # TensorFlow traces and feeds, and leaves them to PJRT
    try:
        mtf.GpuMeshImpl("all:1", "")
    except DeviceError as error:
        return str(error)
    return None


def card_name(virtual: int | None) -> str:
    """The name of the card, as NVIDIA's driver tells it."""
    if virtual is not None:
        return "virtual GPU"
    if shutil.which("nvidia-smi") is None:
        return "GPU of unknown name"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    return told.splitlines()[0].strip() if told.strip() else "GPU of unknown name"
