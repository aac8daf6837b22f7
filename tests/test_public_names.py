"""What `import meshtf as mtf` gives, and what it must not do."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as compat
from meshtf import control_flow, ops
from tests.fresh_process import run_fresh

IMPORT_ALONE = """
import meshtf
import tensorflow as tf
from tests.fork_server import IMPORTED_WITH_MESHTF
from meshtf.tensorflow_private.eager_context import has_started

assert not has_started(), "TensorFlow has started"
assert not tf.compat.v1.get_default_graph().get_operations(), "an operation was made"
early = [name for name in ("meshtf.layers", "meshtf.models", "meshtf.train", "gin") if name in IMPORTED_WITH_MESHTF]
assert not early, f"imported before it was asked for: {early}"
assert callable(meshtf.layers.dense) and callable(meshtf.models.MLPClassifier)
"""


@pytest.mark.parametrize("package", [ops, control_flow], ids=lambda package: package.__name__)
def test_every_name_of_the_language_is_public(package: object) -> None:
    """A name added to `__all__` of the package is public: `meshtf/__init__.py` takes its names from there."""
    assert [name for name in package.__all__ if getattr(mtf, name, None) is not getattr(package, name)] == []
    assert sorted(set(package.__all__) - set(mtf.__all__)) == []


@pytest.mark.parametrize("room", ["attention", "convolution", "losses", "normalization"])
def test_every_name_of_a_room_of_layers_is_public(room: str) -> None:
    package = importlib.import_module(f"meshtf.layers.{room}")
    assert [name for name in package.__all__ if getattr(mtf.layers, name, None) is not getattr(package, name)] == []
    assert sorted(set(package.__all__) - set(mtf.layers.__all__)) == []


@pytest.mark.parametrize("package", [mtf, mtf.layers], ids=lambda package: package.__name__)
def test_every_public_name_is_there_once(package: ModuleType) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert len(package.__all__) == len(set(package.__all__))


def test_programs_of_the_original_have_every_operation() -> None:
    """With its parameters, and with no `with graph`, unless the original's differ."""
    functions = [name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))]
    assert sorted(set(functions) - set(compat.__all__)) == []
    assert [name for name in compat.__all__ if not hasattr(compat, name)] == []
    assert inspect.signature(compat.einsum) == inspect.signature(mtf.einsum)
    assert compat.gather.__module__ != mtf.gather.__module__  # it takes the original's operands


def test_a_misspelt_name_gives_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'reduce_summ'; did you mean \"reduce_sum\"\?"):
        mtf.reduce_summ  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'zzzzzz'$"):
        mtf.zzzzzz  # noqa: B018


def test_importing_starts_nothing_and_imports_no_layers() -> None:
    done = run_fresh(["-c", IMPORT_ALONE])
    assert done.status == 0, done.stderr
