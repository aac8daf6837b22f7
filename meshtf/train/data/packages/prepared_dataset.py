"""The package TensorFlow Datasets, which is optional, and its errors."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError

MISSING_TENSORFLOW_DATASETS = """\
{source} reads with TensorFlow Datasets, which is not installed.
Install it with the project's extra: pip install 'meshtf[datasets]'"""


def import_tensorflow_datasets(source: str) -> Any:
    """Returns the package. `source`: the name of the source that needs it.

    Raises:
      ConfigurationError: if it is not installed.
    """
    try:
        return importlib.import_module("tensorflow_datasets")
    except ImportError as error:
        raise ConfigurationError(MISSING_TENSORFLOW_DATASETS.format(source=source)) from error


@contextlib.contextmanager
def loading(dataset: str, split: str) -> Iterator[None]:
    """Turns errors of the package, while it loads a data set, into a ConfigurationError."""
    try:
        yield
    except (AssertionError, OSError, RuntimeError, ValueError) as error:
        name, known = dataset.split("/")[0], importlib.import_module("tensorflow_datasets").list_builders()
        # For an unknown name the package lists all of its data sets, more than a thousand.
        fact = str(error).partition("\nAvailable datasets")[0].strip()
        raise ConfigurationError(
            f'TensorFlow Datasets cannot load "{dataset}" ({split}): {fact}'
            f"{'' if name in known else nearest(name, known)}"
        ) from error
