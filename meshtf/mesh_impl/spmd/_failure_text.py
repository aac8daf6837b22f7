"""Parses the text of TensorFlow's errors."""

from __future__ import annotations

import re

import tensorflow as tf

from meshtf.errors import CollectiveError

_NODE = re.compile(r"\{\{node ([^}]+)\}\}")
_ABORTED = re.compile(r"Collective ops is aborted by: (.*)")
_ROOT = re.compile(r"^\s*\(\d+\)\s*([A-Z_]+: .*)$", re.MULTILINE)
_NOISE = re.compile(
    r'\[\[|\[Op:|File "|Detected at node|Graph execution error|<stack traces|Hint: |\d+ (root error|successful|derived)'
)
_FAILED_FOR_GOOD = ("Collective ops is aborted", "Collective has timed out")


def is_collective_failure(error: BaseException) -> bool:
    """Whether a collective failed or timed out, so that the process can run no further collectives.

    If an operation fails on another core, collectives and cores that have not started yet are only cancelled. Then the
    process stays usable.
    """
    if not isinstance(error, tf.errors.OpError):
        return isinstance(error, CollectiveError)
    message = message_of(error)
    if any(text in message for text in _FAILED_FOR_GOOD):
        return True
    broken = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    return isinstance(error, broken) and any("Collective" in node for node in nodes(message))


def message_of(error: BaseException) -> str:
    """The whole text of an error."""
    return str(getattr(error, "message", error))


def nodes(text: str) -> list[str]:
    """The paths of the nodes that a text names."""
    return _NODE.findall(text)


def short_text(error: BaseException) -> str:
    """The essential fact of an error in one line, without stack and node paths."""
    text = message_of(error)
    if aborted := _ABORTED.search(text):
        return aborted.group(1)
    # If there are several, cancelled ones are consequences of another.
    roots = sorted(_ROOT.findall(text), key=lambda root: root.startswith("CANCELLED"))
    facts = roots[:1] or [line.strip() for line in text.splitlines() if line.strip() and not _is_noise(line)]
    # TensorFlow puts its stacks first and the fact last; other errors start with it.
    fact = facts[-1 if "Graph execution error" in text else 0] if facts else type(error).__name__
    return re.sub(r"\s+", " ", re.sub(r"\{\{[^}]*\}\}|\[Op:[^\]]*\]", " ", fact)).strip()


def _is_noise(line: str) -> bool:
    return _NOISE.match(line.strip()) is not None
