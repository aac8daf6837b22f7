"""Fingerprints of data: a few numbers in a checkpoint, by which a run notices that its data have changed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from meshtf.errors import counted
from meshtf.train.data.shuffled_batches import NUM_EXAMPLES
from meshtf.train.task import Fingerprint, Position, Task, TaskOfKnownData

SOURCE, CONTENTS, IN_ANY_ORDER = "source", "contents", "in any order"
"""Facts other than counts and settings: the source (only for messages), a checksum, and one that ignores the order."""

_PIECE = 1 << 22


def fingerprint_of(task: Task) -> Fingerprint | None:
    """Returns a task's fingerprint of its data, or None if it has none."""
    return task.fingerprint() if isinstance(task, TaskOfKnownData) else None


def differences(then: object, now: Fingerprint | None) -> list[str]:
    """Lists the parts of the data that have changed. `then`: the fingerprint in a checkpoint, which may be
    missing or wrong. Settings that it lacks are not compared: an earlier version did not write them.
    """
    if not isinstance(then, Mapping) or now is None:
        return []
    lines = []
    for part in dict.fromkeys([*then, *now]):
        before, after = then.get(part), now.get(part)
        if before is None and after and all(fact == SOURCE or _is_setting(after, fact) for fact in after):
            continue
        if not isinstance(before, Mapping) or after is None:
            lines.append(f"{part}: {'not there any more' if after is None else 'not there then'}")
        elif found := "; ".join(_changes(before, after)):
            lines.append(f"{part}{f' ({after[SOURCE]})' if SOURCE in after else ''}: {found}")
    return lines


def in_changed_data(position: Position, task: Task) -> Position:
    """Returns the same position for changed data, which may have more or fewer examples."""
    count = getattr(task, "num_training_examples", None)
    return position if count is None else {**position, NUM_EXAMPLES: count}


def checksum(arrays: Sequence[np.ndarray]) -> str:
    """Returns a CRC-32 of the bytes of each array."""
    return " ".join(f"{crc_of(array):08x}" for array in arrays)


def crc_of(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def counts_checksum(arrays: Sequence[np.ndarray]) -> str:
    """Returns a checksum of how often each number occurs in arrays [n] of integers, 0 or more. Their order does
    not matter.
    """
    counts = []
    for array in arrays:
        found = np.zeros(int(array.max(initial=0)) + 1, np.int64)
        for start in range(0, len(array), _PIECE):
            found += np.bincount(array[start : start + _PIECE], minlength=len(found))
        counts.append(found)
    return checksum(counts)


def _changes(then: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    is_counted = False
    for fact, value in now.items():
        if _is_setting(now, fact) and then.get(fact, value) != value:
            yield f"{fact} {then[fact]} then, {value} now"
        if isinstance(value, int) and then.get(fact) != value:
            is_counted = True
            before = then.get(fact)
            single = fact.removesuffix("s")
            then_counted = f"{counted(before, single, fact)} then, {value:,}" if isinstance(before, int) else None
            yield f"{then_counted or counted(value, single, fact)} now"
    if is_counted or then.get(CONTENTS) == now.get(CONTENTS):
        return
    is_known = IN_ANY_ORDER in then and IN_ANY_ORDER in now
    if is_known and then[IN_ANY_ORDER] == now[IN_ANY_ORDER]:
        yield "the same tokens in another order"
    else:
        yield "as many as then, with other contents" + ("" if is_known else ", or in another order")


def _is_setting(facts: Mapping[str, object], fact: str) -> bool:
    return isinstance(facts[fact], str) and fact not in (SOURCE, CONTENTS, IN_ANY_ORDER)
