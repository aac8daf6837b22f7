"""The errors of meshtf. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from meshtf_programs.nearest import nearest as nearest  # re-exported
from meshtf_programs.nearest import nearest_public as nearest_public


class MeshtfError(Exception):
    """Base of every error that meshtf raises itself."""

    ag_pass_through = True  # autograph then raises the error unchanged from a user's tf.function


class ShapeError(MeshtfError, ValueError):
    """Named shapes that do not fit together."""


class DtypeError(MeshtfError, TypeError):
    """Element types that do not fit together."""


class GraphError(MeshtfError, ValueError):
    """A graph that is built wrongly: no current graph, tensors of two graphs, a variable made twice."""


class LayoutError(MeshtfError, ValueError):
    """A layout that is impossible on the mesh or for the program."""


class ContractError(MeshtfError, ValueError):
    """Arguments or results of a function that do not match its annotations."""


class FeedError(MeshtfError, ValueError):
    """An input array of the wrong name, shape or dtype."""


class DeviceError(MeshtfError, RuntimeError):
    """A mesh that does not fit the devices."""


class CollectiveError(MeshtfError, RuntimeError):
    """A collective that failed or timed out."""


class ProcessLostError(CollectiveError):
    """A process of the cluster died, was stopped, or cannot be reached any more."""


class ClusterError(MeshtfError, RuntimeError):
    """Processes that cannot join, or that do not run the same program."""


class ExecutionError(MeshtfError, RuntimeError):
    """A failure of a local operation while a program ran."""


class NonFiniteError(MeshtfError, ArithmeticError):
    """`check_finite` found a NaN or an infinity, or `cholesky` a matrix that is not positive definite."""


class IndexRangeError(MeshtfError, IndexError):
    """An index out of range.

    `check_indices` found an id outside its vocabulary or a label outside the classes, or an index in brackets is
    outside its dimension.
    """


class RowCapacityError(MeshtfError, ValueError):
    """A batch for which one core requests more rows from another core than `embedding_lookup` has room for."""


class MachineError(MeshtfError, ValueError):
    """A description of a machine that is missing or invalid."""


class CompilationError(MeshtfError, ValueError):
    """An operation that XLA cannot compile, in a program for a TPU."""


class UsageError(MeshtfError, RuntimeError):
    """A call in a place that does not allow it: two threads in one step, an outer GradientTape or `jit_compile`."""


class CheckpointError(MeshtfError, ValueError):
    """A checkpoint that is missing, does not fit the program, or cannot be made."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that lacks a part, or that was changed after it was written."""


class OtherModelError(CheckpointError):
    """A checkpoint of a different model than the program's.

    Attributes:
      difference: the message without advice. Command-line programs add their own advice.
    """

    def __init__(self, difference: str, advice: str = "") -> None:
        super().__init__(f"{difference}\n{advice}" if advice else difference)
        self.difference = difference


class SaveError(CheckpointError):
    """A checkpoint that could not be written: a full disk, a read-only folder.

    Earlier checkpoints stay as they were.
    """


class LayoutWarning(UserWarning):
    """A layout rule that has no effect."""


def counted(n: int, noun: str, plural: str = "") -> str:
    """A number of things in words: "1 text", "2,000 texts"."""
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def unknown_name(module: str, public: Iterable[str]) -> Callable[[str], NoReturn]:
    """Makes a module's `__getattr__`, which raises an AttributeError that suggests the nearest public name."""
    names = tuple(public)

    def raise_for(name: str) -> NoReturn:
        near = "" if name.startswith("_") else nearest_public(name, names, module)  # tools ask for many such names
        raise AttributeError(f"module {module!r} has no attribute {name!r}{near}")

    return raise_for
