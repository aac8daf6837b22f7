"""The language's operations as functions that need no `with graph`: all of `meshtf.ops.__all__`, under their names.

Where the original has other parameters, `_functions.py` and `_variables.py` define a function of the same name.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from meshtf import ops
from meshtf.compat.mesh_tensorflow._language import for_graphs

if TYPE_CHECKING:  # the wrappers have the signatures of the functions that they wrap
    from meshtf.ops import *

    __all__: list[str] = []
    __all__ += ops.__all__
else:
    __all__ = [name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))]
    globals().update({name: for_graphs(getattr(ops, name)) for name in __all__})
