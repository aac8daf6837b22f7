"""The errors of meshtf. Every message says what was wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from meshtf_programs.nearest import nearest as nearest  # handed on
from meshtf_programs.nearest import nearest_public as nearest_public


class MeshtfError(Exception):
    """Base of every error that meshtf raises itself."""

    ag_pass_through = True  # autograph, which converts a user's tf.function, then leaves the error as it is


class ShapeError(MeshtfError, ValueError):
    """Named shapes that do not fit together."""


class DtypeError(MeshtfError, TypeError):
    """Element types that do not fit together."""


class GraphError(MeshtfError, ValueError):
    """A graph that is built wrongly: no current graph, tensors of two graphs, a variable asked for twice."""


class LayoutError(MeshtfError, ValueError):
    """A layout that the mesh or the program cannot have."""


class ContractError(MeshtfError, ValueError):
    """Tensors that do not fit the annotations of the function that was called with them, or that returned them."""


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
    """An id outside of its vocabulary, or a label outside of the classes, that `check_indices` found; or an index in
    brackets outside of its dimension."""


class RowCapacityError(MeshtfError, ValueError):
    """`embedding_lookup` found a batch of which one core asks another for more rows than there is room for."""


class MachineError(MeshtfError, ValueError):
    """A description of a machine that is not there, or not right."""


class CompilationError(MeshtfError, ValueError):
    """An operation that XLA cannot compile, in a program for a TPU."""


class UsageError(MeshtfError, RuntimeError):
    """A call in a place that does not allow it: two threads in one step, an outer GradientTape or `jit_compile`."""


class CheckpointError(MeshtfError, ValueError):
    """A checkpoint that is not there, does not fit the program, or cannot be made."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that lacks a part, or that was changed after it was written."""


class OtherModelError(CheckpointError):
    """A checkpoint of another model than the program's.

    Attributes:
      difference: the message without advice. A program of the command line has advice of its own.
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
    """The `__getattr__` of a module of these public names: an AttributeError that says what is meant."""
    names = tuple(public)

    def raise_for(name: str) -> NoReturn:
        near = "" if name.startswith("_") else nearest_public(name, names, module)  # tools ask for many such names
        raise AttributeError(f"module {module!r} has no attribute {name!r}{near}")

    return raise_for
