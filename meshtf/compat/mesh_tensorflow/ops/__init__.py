"""The package's functions and classes as `mtf.ops`, where the original defines them.

Names of Python's own functions are missing in `from .. import *`, as in the original: it has `mtf_range` for `range`.
"""

from __future__ import annotations

import builtins
import inspect
from typing import TYPE_CHECKING, Any

from meshtf.compat import mesh_tensorflow

if TYPE_CHECKING:
    from meshtf.compat.mesh_tensorflow import *

    __all__: list[str] = []
    __all__ += mesh_tensorflow.__all__
else:
    _all = {name: getattr(mesh_tensorflow, name) for name in mesh_tensorflow.__all__ if not hasattr(builtins, name)}
    __all__ = [name for name, found in _all.items() if not inspect.ismodule(found)]
    globals().update({name: _all[name] for name in __all__})

    def __getattr__(name: str) -> Any:
        return getattr(mesh_tensorflow, name)
