"""From TensorFlow's errors to messages in the user's terms."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

import tensorflow as tf

from meshtf.errors import CollectiveError, ExecutionError, MeshtfError

_SCOPE = re.compile(r"(collective_\d+)\.([a-z_]+)\.([A-Za-z0-9_-]+)")
_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_ABORTED = re.compile(r"Collective ops is aborted by: (.*)")
_COLLECTIVE_TEXTS = (
    "Collective ops is aborted",
    "Collective has timed out",
    "RecvAsync is cancelled",
    "Function was cancelled before it was started",
    "CollectiveOp",
)
_MOST_COLLECTIVES_NAMED = 4


@dataclasses.dataclass(frozen=True)
class FailedCollective:
    """A collective that an error's text names: its scope's number, as `collective_17`, its kind and its mesh axes."""

    scope: str
    kind: str
    axes: str


def collective_scope(number: int, kind: str, axes: Iterable[str]) -> str:
    """The name scope under which a collective is to be emitted, so that its failure can be told to the user.

    TensorFlow allows few characters there: `collective_17.all_reduce.rows-cols`.
    """
    return f"collective_{number}.{kind}.{'-'.join(re.sub(r'[^A-Za-z0-9_]', '_', axis) for axis in axes) or '_'}"


def failed_collectives(text: str) -> list[FailedCollective]:
    """The collectives named in an error's text, each once."""
    return list(dict.fromkeys(FailedCollective(*match) for match in _SCOPE.findall(text)))


def is_collective_failure(error: BaseException) -> bool:
    """Whether a collective failed or timed out, after which the process can run no other."""
    if not isinstance(error, tf.errors.OpError):
        return isinstance(error, CollectiveError)
    if any(text in error.message for text in _COLLECTIVE_TEXTS):
        return True
    return any(_SCOPE.search(node) for node in _NODE.findall(error.message))


def translate(error: tf.errors.OpError, scope_to_origin: Mapping[str, str]) -> MeshtfError:
    """An error in the user's terms; to be raised `from None`.

    `scope_to_origin` maps the first part of a name scope, as `collective_17`, to its operation and the user's line.
    """
    if not is_collective_failure(error):
        return ExecutionError(_origin_prefix(error.message, scope_to_origin) + short_text(error))
    named = failed_collectives(error.message)[:_MOST_COLLECTIVES_NAMED]
    lines = [
        f"{c.kind} over mesh axes {c.axes.replace('-', '+')}, for {scope_to_origin.get(c.scope, 'an unknown line')}"
        for c in named
    ]
    where = "; ".join(lines) or "a collective (TensorFlow's error does not say which)"
    return CollectiveError(f"{where}\nfailed: {short_text(error)}\nThe process must be restarted.")


def short_text(error: BaseException) -> str:
    """The fact of an error, in one line: no stack, no node paths."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    if aborted := _ABORTED.search(text):
        return aborted.group(1)
    lines = [line.strip() for line in text.splitlines()]
    facts = [line for line in lines if line and not _is_noise(line)]
    # TensorFlow puts its stacks first and the fact last; other errors start with it.
    fact = (facts[-1 if "Graph execution error" in text else 0] if facts else text.strip()) or type(error).__name__
    fact = re.sub(r"\{\{[^}]*\}\}\s*|\s*\[Op:[^\]]*\]|^\(\d+\)\s*", "", fact)
    return re.sub(r"\s+", " ", fact).strip()


def _is_noise(line: str) -> bool:
    return bool(
        re.match(
            r'\[\[|File "|Detected at node|Graph execution error|<stack traces|\d+ (root error|successful|derived)',
            line,
        )
    )


def _origin_prefix(text: str, scope_to_origin: Mapping[str, str]) -> str:
    for node in _NODE.findall(text):
        for part in node.split("/"):
            if origin := scope_to_origin.get(part) or scope_to_origin.get(part.split(".")[0]):
                return f"{origin}: "
    return ""
