"""Checks that a checkpoint fits the variables of programs. If not, it lists the differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshtf.checkpoint.chunks import saved_shape
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.checkpoint.reading.joined_checkpoint import Restorable
from meshtf.errors import OtherModelError, nearest
from meshtf.ops.variables.variable import Variable

_SHOWN = 20

_REMEDY = """\
Restore into programs of the model that was saved. To use only a part of it, call warm_start with rules for the names.
With ignore_unused=True, tensors that no program has are ignored."""


def check_fits(
    saved: Restorable,
    variables: Sequence[Variable],
    sources: Mapping[str, str],
    program: str,
    *,
    ignore_unused: bool,
) -> None:
    """Raises OtherModelError unless the checkpoint has all tensors to be restored, in their shapes and types.

    Args:
      saved: the checkpoint.
      variables: the variables of the programs.
      sources: for each tensor of the programs to be restored, its name in the checkpoint.
      program: the programs' name in the message.
      ignore_unused: whether the checkpoint may have tensors that are not used.
    """
    wanted = _wanted(variables, sources)
    missing = [f"{name} {form}{nearest(name, saved.tensors)}" for name, form in wanted if name not in saved.tensors]
    other = [
        f"{name} is {saved.tensors[name]} there and {form} here"
        for name, form in wanted
        if name in saved.tensors and str(saved.tensors[name]) != form
    ]
    used = {name for name, _ in wanted}
    unused = [] if ignore_unused else [f"{name} {t}" for name, t in saved.tensors.items() if name not in used]
    lines = [
        *_listed("missing from the checkpoint", missing),
        *_listed(f'in the checkpoint and not in program "{program}"', unused),
        *_listed("of another shape or type", other),
    ]
    if lines:
        head = f'checkpoint {saved.place} does not fit program "{program}":'
        raise OtherModelError("\n".join([head, *lines]), _REMEDY)


def _wanted(variables: Sequence[Variable], sources: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns the name of each source, and the shape and type that it must have, each pair once."""
    pairs = [
        (sources[name], str(SavedTensor(saved_shape(variable), variable.slice_dtype, ())))
        for variable in variables
        for name in variable.saved_names
        if name in sources
    ]
    return list(dict.fromkeys(pairs))


def _listed(what: str, entries: Sequence[str]) -> list[str]:
    if not entries:
        return []
    more = [f"    and {len(entries) - _SHOWN} more"] if len(entries) > _SHOWN else []
    return [f"  {what} ({len(entries)}):", *(f"    {entry}" for entry in entries[:_SHOWN]), *more]
