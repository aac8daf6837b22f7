"""Which rows of a batch the cores of a process read, so that it need make no others."""

from __future__ import annotations

from collections.abc import Mapping

import meshtf as mtf


def rows_read(slices: Mapping[str, tuple[slice, ...]], batch: mtf.Dimension) -> slice:
    """The least run of rows that holds all that is read of inputs [batch, ...].

    Args:
      slices: what is read of each input, as `mtf.Function.input_slices` gives it.
      batch: whose size the whole is.
    """
    rows = [box[0] for box in slices.values() if box[0].stop > box[0].start]
    if not rows:
        return slice(0, batch.size)
    return slice(min(each.start for each in rows), max(each.stop for each in rows))
