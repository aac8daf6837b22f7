"""What data are, in a few numbers that a checkpoint keeps: a run that would go on in other data is told so."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from meshtf.errors import counted
from meshtf.train.data.shuffled_batches import NUM_EXAMPLES
from meshtf.train.task import Fingerprint, Position, Task, TaskOfKnownData

SOURCE, CONTENTS, IN_ANY_ORDER = "source", "contents", "in any order"
"""Facts that are no counts: where the data are from, for messages alone; a checksum; one that no order changes."""

_PIECE = 1 << 22


def fingerprint_of(task: Task) -> Fingerprint | None:
    """What a task says of its data; None where it says nothing."""
    return task.fingerprint() if isinstance(task, TaskOfKnownData) else None


def differences(then: object, now: Fingerprint | None) -> list[str]:
    """A line for each part of the data that is another: `then` is of a checkpoint, which may have none, or anyone's."""
    if not isinstance(then, Mapping) or now is None:
        return []
    lines = []
    for part in dict.fromkeys([*then, *now]):
        before, after = then.get(part), now.get(part)
        if not isinstance(before, Mapping) or after is None:
            lines.append(f"{part}: {'not there any more' if after is None else 'not there then'}")
        elif found := "; ".join(_changes(before, after)):
            lines.append(f"{part}{f' ({after[SOURCE]})' if SOURCE in after else ''}: {found}")
    return lines


def in_changed_data(position: Position, task: Task) -> Position:
    """The same place in data that are others now, perhaps more or fewer."""
    count = getattr(task, "num_training_examples", None)
    return position if count is None else {**position, NUM_EXAMPLES: count}


def checksum(arrays: Sequence[np.ndarray]) -> str:
    """A CRC-32 of the bytes of each."""
    return " ".join(f"{crc_of(array):08x}" for array in arrays)


def crc_of(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def counts_checksum(arrays: Sequence[np.ndarray]) -> str:
    """A checksum of how often each number stands in arrays [n] of integers, 0 or more, which their order leaves as it
    is."""
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
