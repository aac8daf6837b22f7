"""One compilation of each segment for all virtual CPUs of a process, by way of a folder of its own."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from multiprocessing import util

from tensorflow.python import pywrap_tfe  # no public name reads XLA's flags

_FLAGS, _FOLDER_FLAG = "TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory"
_NEEDED_BYTES = 64 << 20


@functools.cache
def share_compilations() -> None:
    """XLA compiles anew for each device, unless it finds what it wants in a folder: this gives it one.

    Eight virtual CPUs compile a training step's updates once, and not eight times: the first call of a small
    Transformer takes 7 s of CPU time in place of 12. To be called before TensorFlow lists its devices, when it reads
    the setting once; it is no more in the environment then, so that processes that are started later have none of it.
    The folder goes when the process ends. Nothing is done where the environment names another, or there is no room.
    """
    given = os.environ.get(_FLAGS)
    if _FOLDER_FLAG in (given or ""):
        return
    try:
        folder = tempfile.mkdtemp(prefix="meshtf_compiled_")
    except OSError:
        return
    # At the end of a process that multiprocessing has started, too, and not of what this one forks.
    util.Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)
    if shutil.disk_usage(folder).free < _NEEDED_BYTES:
        return
    os.environ[_FLAGS] = f"{given or ''} {_FOLDER_FLAG}={folder}".strip()
    try:
        pywrap_tfe.TF_GetXlaConstantFoldingDisabled()  # reads all flags
    finally:
        if given is None:
            del os.environ[_FLAGS]
        else:
            os.environ[_FLAGS] = given
