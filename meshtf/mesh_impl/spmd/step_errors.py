"""Converts TensorFlow's errors to errors that name the operation and the user's line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

import tensorflow as tf

from meshtf.errors import CollectiveError, ExecutionError, MeshtfError, ProcessLostError
from meshtf.mesh_impl.spmd._failure_text import is_collective_failure, message_of, nodes, short_text
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime

_SCOPE = re.compile(r"(collective_\d+)\.([a-z_]+)\.([A-Za-z0-9_-]+)")
_MOST_COLLECTIVES_NAMED = 4

_GROUP_CANCELLED = "group is cancelled"
_LOST_TEXT = "an operation failed on one of the cores, and TensorFlow lost its text"
_LOST = (
    _LOST_TEXT
    + """: the other cores were cancelled ({fact}).
Run the program on a mesh of one core to see the error."""
)


_LOST_PROCESS = """\
{lost}
This process waited in {where}
Start all processes again; training resumes from its last checkpoint."""


@dataclasses.dataclass(frozen=True)
class FailedCollective:
    """A collective that an error's text names: its numbered scope, such as `collective_17`, its kind and mesh axes."""

    scope: str
    kind: str
    axes: str


def collective_scope(number: int, kind: str, axes: Iterable[str]) -> str:
    """The name scope for emitting a collective, so that an error can name it to the user.

    TensorFlow allows few characters there: `collective_17.all_reduce.rows-cols`.
    """
    return f"collective_{number}.{kind}.{'-'.join(re.sub(r'[^A-Za-z0-9_]', '_', axis) for axis in axes) or '_'}"


def failed_collectives(text: str) -> list[FailedCollective]:
    """The collectives named in an error's text, each once."""
    return list(dict.fromkeys(FailedCollective(*match) for match in _SCOPE.findall(text)))


def may_be_a_loss(error: tf.errors.OpError) -> bool:
    """Whether the loss of another process may have caused this error."""
    return is_collective_failure(error) or isinstance(
        error, tf.errors.CancelledError | tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.InternalError
    )


def translate(error: tf.errors.OpError, scope_to_origin: Mapping[str, str], lost: str | None = None) -> MeshtfError:
    """Converts an error to one of meshtf, to be raised `from None`. `lost` describes a process that is gone, if any.

    `scope_to_origin` maps the first part of a name scope, such as `collective_17`, to its operation and user's line.
    """
    if lost is not None:
        return ProcessLostError(_LOST_PROCESS.format(lost=lost, where=_where(error, scope_to_origin)))
    cancelled = isinstance(error, tf.errors.CancelledError)
    if is_collective_failure(error) or (cancelled and collective_runtime().failed):
        return CollectiveError(_collective_text(error, scope_to_origin))
    if cancelled:
        return ExecutionError(_LOST.format(fact=short_text(error)))
    return ExecutionError(_origin_prefix(message_of(error), scope_to_origin) + short_text(error))


def lost_its_text(error: MeshtfError) -> bool:
    """Whether an error may hide a failed operation, because TensorFlow reports only cancelled ones.

    In a first step TensorFlow may also have cancelled the creation of a group of cores, which it treats as a permanent
    failure.
    """
    return _LOST_TEXT in str(error) or (isinstance(error, CollectiveError) and _GROUP_CANCELLED in str(error))


def _collective_text(error: tf.errors.OpError, scope_to_origin: Mapping[str, str]) -> str:
    where = _where(error, scope_to_origin)
    fact = short_text(error)
    first = collective_runtime().failed
    if first and fact not in first:  # the text of a cancelled core, while the watchdog has more information
        fact = f"{first} ({fact})"
    return f"{where}\nfailed: {fact}\nThe process must be restarted."


def _where(error: tf.errors.OpError, scope_to_origin: Mapping[str, str]) -> str:
    """The collectives that an error names, and the user's lines for them."""
    named = failed_collectives(message_of(error))[:_MOST_COLLECTIVES_NAMED]
    lines = [
        f"{c.kind} over mesh axes {c.axes.replace('-', '+')}, for {scope_to_origin.get(c.scope, 'an unknown line')}"
        for c in named
    ]
    return "; ".join(lines) or "a collective (TensorFlow's error does not say which)"


def _origin_prefix(text: str, scope_to_origin: Mapping[str, str]) -> str:
    """The origin of the first node whose origin is known. Collectives come last, since they may only be cancelled."""
    for node in sorted(nodes(text), key=lambda node: _SCOPE.search(node) is not None):
        for part in node.split("/"):
            if origin := scope_to_origin.get(part) or scope_to_origin.get(part.split(".")[0]):
                return f"{origin}: "
    return ""
