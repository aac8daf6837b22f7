"""Whether TensorFlow computes by oneDNN's kernels in this process, or by those of its own."""

from __future__ import annotations

# No public name tells. It goes by the processor, and by an environment variable of TensorFlow's.
from tensorflow.python.util import _pywrap_util_port


def has_onednn_kernels() -> bool:
    """As it has for convolutions and products on most processors with AVX-512."""
    return bool(_pywrap_util_port.IsMklEnabled())
