"""Reads the set-up of this machine's GPUs, and explains why programs cannot run on them.

A GPU needs three matching parts: NVIDIA's driver, the CUDA plugin for PJRT (an extra of meshtf), and the release of
jaxlib for which the plugin was made. They are inspected without opening a GPU, so that a message can name the missing
part.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import os
from collections.abc import Mapping

from meshtf.errors import counted

_CUDA_RELEASES = (12, 13)
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LONGEST_FACT = 600
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

_NO_GPU = """\
a GPU was asked for, and none can be used: {fact}.
{remedy}
To run the program on virtual GPUs, on this machine's processors, call mtf.virtual_gpus({size}) before the first \
mesh; to plan it for GPUs that are elsewhere, use mtf.PlanMeshImpl."""

_REMEDIES = {
    ("OUT_OF_MEMORY", "RESOURCE_EXHAUSTED", "out of memory"): """\
Another process has the GPU's memory (`nvidia-smi` lists them): end it, or give each process a share, as \
memory_fraction=0.4.""",
    ("DEVICE_UNAVAILABLE", "busy or unavailable"): """\
Another process has the GPU for itself (`nvidia-smi` lists them): end it, or wait for its end.""",
    ("SYSTEM_NOT_READY",): """\
GPUs with NVSwitch need NVIDIA's fabric manager: `systemctl start nvidia-fabricmanager`.""",
    ("DRIVER_MISMATCH",): """\
The driver's library and its kernel module are of different releases, as after an update: restart the machine.""",
    ("Unknown backend",): """\
JAX opens only the platforms of JAX_PLATFORMS or `jax_platforms`: unset it, or add cuda to it.""",
}
"""The remedies of errors, by texts that they have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuSetup:
    """The parts that a GPU needs.

    Attributes:
      driver: the CUDA release that the driver supports, as (13, 0); None without a driver.
      gpus: the number of GPUs that the driver shows this process; None without a driver.
      visible: the value of CUDA_VISIBLE_DEVICES; None if it is not set.
      plugins: the release of jax of each installed plugin, by its release of CUDA.
      jaxlib: the installed release of jaxlib.
      driver_error: CUDA's name of the error with which the driver does not start; empty if it starts.
    """

    driver: tuple[int, int] | None
    gpus: int | None
    visible: str | None
    plugins: Mapping[int, str]
    jaxlib: str
    driver_error: str = ""

    @classmethod
    def of_this_machine(cls) -> GpuSetup:
        """Reads the driver's library, the environment, and the installed packages."""
        driver, gpus, driver_error = _asked_driver()
        plugins = {cuda: _installed(f"jax-cuda{cuda}-plugin") for cuda in _CUDA_RELEASES}
        return cls(
            driver=driver,
            gpus=gpus,
            visible=os.environ.get(_VISIBLE),
            plugins={cuda: release for cuda, release in plugins.items() if release},
            jaxlib=_installed("jaxlib"),
            driver_error=driver_error,
        )

    def why_none(self, error: str, size: int) -> str:
        """Explains why no GPU is usable, and what to do.

        Args:
          error: the runtime's error text.
          size: the number of cores of the mesh.
        """
        fact, remedy = self._fault(error)
        return _NO_GPU.format(fact=fact, remedy=remedy, size=size)

    def _fault(self, error: str) -> tuple[str, str]:
        """The first part that is missing or does not fit, and the remedy."""
        if self.driver is None:
            return "this machine has no NVIDIA driver (libcuda.so.1)", "Install it, or use a machine that has a GPU."
        release = ".".join(map(str, self.driver))
        if self.driver[0] < min(_CUDA_RELEASES):
            fact = f"the NVIDIA driver is too old; it supports CUDA {release}, and {min(_CUDA_RELEASES)}.0 is the least"
            return fact, "Install a newer driver."
        if self.driver_error:
            return f"the NVIDIA driver does not start: {self.driver_error}", _remedy_of(self.driver_error)
        if not self.gpus:
            if self.visible is not None:
                return f"{_VISIBLE}={self.visible!r} hides every GPU", f"Unset it, or give numbers, as {_VISIBLE}=0,1."
            return (
                "the NVIDIA driver sees no GPU",
                "In a container, start it with GPUs: `docker run --gpus all`.",
            )
        fitting = max(cuda for cuda in _CUDA_RELEASES if cuda <= self.driver[0])
        install = f"Install what fits the driver (CUDA {release}): pip install 'meshtf[cuda{fitting}]'"
        there = f"{counted(self.gpus, 'GPU')} {'is' if self.gpus == 1 else 'are'} there"
        if not self.plugins:
            return f"{there}, and the plugin of CUDA for PJRT is not installed", install
        if len(self.plugins) > 1:
            names = " and ".join(f"jax-cuda{cuda}-plugin" for cuda in self.plugins)
            fact = f"{names} are both installed, and hinder one another"
            return fact, f"Keep one: pip uninstall jax-cuda{min(self.plugins)}-plugin jax-cuda{min(self.plugins)}-pjrt"
        ((cuda, plugin),) = self.plugins.items()
        if cuda > self.driver[0]:
            return f"jax-cuda{cuda}-plugin needs a newer driver than this one, which supports CUDA {release}", install
        if plugin != self.jaxlib:
            fact = f"jax-cuda{cuda}-plugin is of release {plugin}, and jaxlib of release {self.jaxlib}"
            return fact, f"Install both of one release: pip install 'meshtf[cuda{cuda}]'"
        return f"{there}, and the runtime does not start: {error[:_LONGEST_FACT]}", _remedy_of(error)


def _remedy_of(error: str) -> str:
    """The remedy for an error of the driver or of the runtime itself."""
    remedies = (remedy for signs, remedy in _REMEDIES.items() if any(sign in error for sign in signs))
    return next(remedies, "`nvidia-smi` says whether the GPU is well.")


def _installed(package: str) -> str:
    """The installed release of a package; empty if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _asked_driver() -> tuple[tuple[int, int] | None, int | None, str]:
    """The CUDA release that the driver supports, the number of GPUs, and the error with which it does not start.

    Release and number are None if there is no driver. The names below are functions of CUDA's driver API.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, None, ""
    number, count, name, error = ctypes.c_int(), ctypes.c_int(), ctypes.c_char_p(), ""
    if status := library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count)):
        count.value = 0
        if status != _NO_DEVICE:
            library.cuGetErrorName(status, ctypes.byref(name))
            error = name.value.decode() if name.value else f"error {status}"
    if library.cuDriverGetVersion(ctypes.byref(number)):
        return None, None, ""
    return (number.value // 1000, number.value % 1000 // 10), count.value, error
