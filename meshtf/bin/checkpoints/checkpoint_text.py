"""The output of meshtf-checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from meshtf.checkpoint.comparison import Comparison
from meshtf.checkpoint.formats.tensor_source import TensorSource
from meshtf.checkpoint.manifest import MANIFEST
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, counted
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.lowering.report.text_table import Column, bytes_text, table
from meshtf_programs.strict_json import json_text

_WIDTH = 120


def list_row(folder: Path | RemoteFolder) -> Sequence[str] | str:
    """Returns the cells of a checkpoint's line. For a damaged checkpoint it returns a sentence on the damage."""
    try:
        saved = SavedCheckpoint.open(folder)
        saved.check_files()
    except CheckpointError as error:
        return str(error)
    seconds = folder.modified(MANIFEST) if isinstance(folder, RemoteFolder) else (folder / MANIFEST).stat().st_mtime
    written = datetime.fromtimestamp(seconds)
    size = bytes_text(saved.num_bytes)
    return [str(folder), str(saved.step), str(len(saved.tensors)), size, f"{written:%Y-%m-%d %H:%M:%S}"]


def list_text(rows: Sequence[Sequence[str] | str]) -> str:
    """Returns a table of checkpoints."""
    numbers = [Column(title, is_number=True) for title in ("step", "tensors", "size")]
    return "\n".join(table([Column("checkpoint"), *numbers, Column("written")], rows, _WIDTH))


def contents_text(source: TensorSource, pattern: re.Pattern[str]) -> str:
    """Returns step, state and tensors, with only the tensors whose names match the pattern."""
    chosen = {name: tensor for name, tensor in source.tensors.items() if pattern.search(name)}
    columns = [Column("tensor", keeps="end"), Column("shape"), Column("type"), Column("size", is_number=True)]
    rows = [
        [printable(name), f"[{', '.join(map(str, tensor.shape))}]", tensor.dtype.name, bytes_text(tensor.num_bytes)]
        for name, tensor in chosen.items()
    ]
    num_bytes = sum(tensor.num_bytes for tensor in chosen.values())
    return "\n".join(
        [
            f"step:     {source.step}",
            f"state:    {json_text(dict(source.state), sort_keys=True)}",
            f"tensors:  {len(chosen)} of {len(source.tensors)}, {bytes_text(num_bytes).strip()}",
            *table(columns, rows, _WIDTH),
        ]
    )


def printable(name: str) -> str:
    """Returns a name without characters that control a terminal. The name may come from an untrusted file."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in name)


def comparison_text(comparison: Comparison, first: TensorSource, second: TensorSource) -> str:
    """Returns the differences as text, and how many tensors are equal."""
    lines = [f"only in the first:   {printable(name)} {first.tensors[name]}" for name in comparison.only_first]
    lines += [f"only in the second:  {printable(name)} {second.tensors[name]}" for name in comparison.only_second]
    lines += [
        f"of another form:     {printable(name)} {first.tensors[name]} in the first, "
        f"{second.tensors[name]} in the second"
        for name in comparison.other_form
    ]
    if comparison.differences:
        columns = [
            Column("different values", keeps="end"),
            Column("elements that differ", is_number=True),
            Column("largest difference", is_number=True),
        ]
        rows = [
            [printable(name), f"{d.num_different:,} of {d.num_elements:,}", f"{d.largest:.3g}"]
            for name, d in comparison.differences.items()
        ]
        lines += table(columns, rows, _WIDTH)
    if first.state != second.state:
        lines.append("the runs' states differ")
    return "\n".join([*lines, f"equal:               {counted(comparison.num_equal, 'tensor')}"])
