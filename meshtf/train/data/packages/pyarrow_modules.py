"""The modules of pyarrow, an optional package."""

from __future__ import annotations

import importlib
from typing import Any

from meshtf.train.configuration import ConfigurationError

MISSING_PYARROW = """\
{what} reads with pyarrow, which is not installed.
Install it with the project's extra: pip install 'meshtf[arrow]'"""


def import_pyarrow(module: str, what: str) -> Any:
    """Returns a module of pyarrow, which is an optional dependency. `what`: the name of the thing that needs it.

    Raises:
      ConfigurationError: if it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(MISSING_PYARROW.format(what=what)) from error
