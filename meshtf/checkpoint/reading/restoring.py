"""Restores the variables of programs from a checkpoint, slice by slice, in whatever layouts the programs plan.

A core needs a box of a variable. The checkpoint has one tensor for each layer of the variable, in boxes of the layout
in which it was saved. So for each core's box, TensorFlow joins the part of each layer from the saved boxes. Then the
layers are stacked. No process ever holds more than the boxes of its own cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from meshtf.axis_parts import AxisParts
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import boxes, layers_in
from meshtf.checkpoint.reading._check_fits import check_fits
from meshtf.checkpoint.reading.joined_checkpoint import Restorable
from meshtf.checkpoint.reading.name_rules import NameRules
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError
from meshtf.function.program import Function
from meshtf.layout import TensorLayout
from meshtf.lowering.variable_store import StoreEntry, VariableStore
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.ops.variables.variable import Variable


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The result of a warm start, by the names of tensors in checkpoints.

    Attributes:
      restored: the tensor of the checkpoint that each restored tensor of the programs came from.
      initial: the tensors of the programs that kept their values, or got initial ones.
    """

    restored: Mapping[str, str]
    initial: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class _Planned:
    """A variable of a program, and the mesh and layout in which it is planned."""

    variable: Variable
    layout: TensorLayout
    mesh_impl: MeshImpl
    axis_parts: AxisParts


def restore(
    saved: SavedCheckpoint,
    programs: Sequence[Function],
    *,
    ignore_unused: bool = False,
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Gives every variable of the programs its value in the checkpoint.

    Variables that the store lacks are made in the layouts that the programs plan, without computing initial values.
    Variables of the store that no program has are left unchanged.

    Args:
      saved: a checkpoint from `CheckpointFolder.newest_readable`, which has verified it.
      programs: programs that share one store. If two would make a variable in different layouts, the first decides.
      ignore_unused: whether the checkpoint may have tensors that no program has. An evaluation needs no optimizer
        state.
      renamed: for tensors with other names in the checkpoint, these names, by the names in the programs.

    Raises:
      CheckpointError: if it is of another model. The message names the tensors that are missing, unexpected, or of
        another shape or type. Nothing has changed.
      DamagedCheckpointError: if the values are not those that were written. New variables are removed again, but values
        of old variables may have been replaced.
      DeviceError: if a program needs more memory than there is. Nothing has changed.
    """
    _check_arguments(saved, programs)
    planned, store = _planned(programs), programs[0].variables
    variables = [p.variable for p in planned.values()]
    sources = {name: (renamed or {}).get(name, name) for variable in variables for name in variable.saved_names}
    check_fits(saved, variables, sources, programs[0].name, ignore_unused=ignore_unused)
    for program in programs:
        program.check_memory()
    made: list[str] = []
    try:
        for name, own in planned.items():
            if name not in store:
                store.create(own.variable, own.layout, own.mesh_impl, own.axis_parts)
                made.append(name)
            _assign(store.slices(name), _whole_reader(saved, store.slices(name), sources))
    except BaseException:
        # A new variable without its value must not look like a restored one.
        for name in made:
            del store[name]
        raise


def warm_start(saved: Restorable, programs: Sequence[Function], rules: Sequence[tuple[str, str | None]]) -> WarmStart:
    """Restores some variables of the programs, from tensors that may have other names. Others get initial values.

    Args:
      saved: a checkpoint, of this model or another.
      programs: programs that share one store.
      rules: pairs of a regular expression and a name. For each tensor of the programs, the first rule whose expression
        matches its whole name counts. The rule's name is the tensor's name in the checkpoint, where `\\1` stands for
        the first group. None keeps the initial value. A tensor that no rule matches has the same name in the
        checkpoint.

    Raises:
      CheckpointError: if a tensor to be restored is missing, or has another shape or type, or if a rule matches
        nothing. Nothing has changed.
      DamagedCheckpointError: if the values are not those that were written. Some variables may have been restored.
    """
    _check_arguments(saved, programs)
    planned, store = _planned(programs), programs[0].variables
    variables = [p.variable for p in planned.values()]
    own_names = [name for variable in variables for name in variable.saved_names]
    sources = NameRules(rules).sources(own_names)
    check_fits(saved, variables, sources, programs[0].name, ignore_unused=True)
    for program in programs:
        program.initialize()
    for name, own in planned.items():
        if any(n in sources for n in own.variable.saved_names):
            _assign(store.slices(name), _partial_reader(saved, store.slices(name), sources))
    return WarmStart(sources, tuple(n for n in own_names if n not in sources))


def _check_arguments(saved: object, programs: object) -> None:
    """Raises CheckpointError for common mistakes: no checkpoint where one is needed, or no list of programs."""
    if saved is None:
        raise CheckpointError(
            "there is no checkpoint to restore: the checkpoint is None, as newest_readable() found none"
        )
    if not hasattr(saved, "tensors"):
        what = repr(saved) if isinstance(saved, str | Path) else f"a {type(saved).__name__}"
        raise CheckpointError(f"give a checkpoint, such as newest_readable() of a CheckpointFolder, not {what}")
    if isinstance(programs, Function):
        raise CheckpointError(
            f'the programs must be a list, even if there is only one: give [program "{programs.name}"]'
        )


def _planned(programs: Sequence[Function]) -> dict[str, _Planned]:
    if not programs or len({id(program.variables) for program in programs}) != 1:
        raise CheckpointError(
            f"programs that are restored together must share one store, and these {len(programs)} do not: give "
            "mtf.function variables=first.variables for each after the first"
        )
    planned: dict[str, _Planned] = {}
    for program in programs:
        for name, layout in program.variable_layouts.items():
            variable = program.graph.variables[name]
            assert isinstance(variable, Variable)
            mesh_impl, axis_parts = program.lowering.device_mesh, program.lowering.axis_parts
            _check_agree(variable, planned, program.variables, mesh_impl)
            planned.setdefault(name, _Planned(variable, layout, mesh_impl, axis_parts))
    return planned


def _check_agree(
    variable: Variable, planned: Mapping[str, _Planned], store: VariableStore, mesh_impl: MeshImpl
) -> None:
    """Raises an error if the store, or an earlier program, has another such variable, or has it on another mesh."""
    name = variable.full_name
    if name in store:
        store.check_fits(variable, mesh_impl.shape, mesh_impl.devices)
    elif name in planned and not planned[name].variable.spec.is_alike(variable.spec):
        raise CheckpointError(
            f'two programs have variable "{name}" as {planned[name].variable.spec} and {variable.spec}'
        )


def _assign(variable: StoreEntry, read: Callable[[Box], tf.Tensor]) -> None:
    """Gives each core the value of its box, followed by zeros if the slice is padded."""
    shape = variable.layout.slice_shape(variable.shape, variable.mesh_shape)
    with tf.init_scope():
        for box, cores in boxes(variable).items():
            value = read(box)
            if tuple(value.shape) != shape:
                value = tf.pad(value, [(0, n - m) for n, m in zip(shape, box.size, strict=True)])
            for core in cores:
                variable.slices[core].assign(value)


def _whole_reader(saved: Restorable, variable: StoreEntry, sources: Mapping[str, str]) -> Callable[[Box], tf.Tensor]:
    def read(box: Box) -> tf.Tensor:
        if not box.num_elements:
            return tf.zeros(box.size, variable.dtype)
        return _joined(variable, box, [saved.read(sources[x.name], x.box(box)) for x in layers_in(variable, box)])

    return read


def _joined(variable: StoreEntry, box: Box, layers: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a box of the variable, from its layers."""
    names, stacked = variable.shape.dimension_names, variable.stacked_dims.dimension_names
    if not stacked:
        return layers[0]
    order = [*stacked, *(n for n in names if n not in stacked)]
    joined = tf.reshape(tf.stack(layers), [box.size[names.index(n)] for n in order])
    return tf.transpose(joined, [order.index(n) for n in names])


def _partial_reader(saved: Restorable, variable: StoreEntry, sources: Mapping[str, str]) -> Callable[[Box], tf.Tensor]:
    """Returns a function that reads a box. Layers without a source keep the variable's present values."""
    held = boxes(variable)

    def read(box: Box) -> tf.Tensor:
        value = np.array(variable.slices[held[box][0]].numpy())
        for layer in layers_in(variable, box) if box.num_elements else ():
            if layer.name in sources:
                part = layer.box(box)
                value[layer.index_in(box, part)] = saved.read(sources[layer.name], part).numpy()
        return tf.constant(value)

    return read
