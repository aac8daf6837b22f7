"""Stores the slices of variables, which programs share and checkpoints save."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.axis_parts import WHOLE_AXES, AxisParts
from meshtf.call_sites import says_where
from meshtf.dimension import Shape, described
from meshtf.errors import DtypeError, GraphError, LayoutError, ShapeError, UsageError, nearest
from meshtf.host_array import host_array
from meshtf.layout import LayoutRules, TensorLayout
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.slices import Slices, on_host, to_assign
from meshtf.ops.inputs.scalars import held_by
from meshtf.planning import core_positions
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.stored_variables import StoredVariable

_OTHER_PARTS = """\
variable "{name}" is kept as [{layout}], split over parts of a mesh axis. The program that updates it chose
this, but another program was lowered before that one ran. Call the one that updates it, or its initialize(), before
lowering others."""

_EMPTY = "; the store is empty until a program that makes variables has run, or its initialize() has been called"

_ELSEWHERE = """\
{elsewhere} of the {count} slices of variable "{name}" [{layout}] are in other processes. Save a checkpoint, or read it
with a program that all processes call. Give it the mesh_impl and the store of the program that has the variable:
    def whole(mesh):
        return mtf.read_variable(mtf.get_variable(mesh, "{name}", "{shape}", dtype=tf.{dtype}))
    mtf.function(whole, mesh_impl, variables=store)().numpy()"""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class StoreEntry:
    """One variable: its named shape, its layout, and the slice of each core in this process.

    Attributes:
      shape: its shape as stored in slices, with the zeros at the ends of dimensions.
      unpadded_shape: its shape for users and in files, without these zeros.
      stacked_dims: the dimensions that count layers.
      axis_parts: the mesh axes that are in parts in `mesh_shape`.
      saved_names: the names of its layers in files, in row-major order of `stacked_dims`; else its own name.
    """

    name: str
    shape: Shape
    unpadded_shape: Shape
    stacked_dims: Shape
    saved_names: tuple[str, ...]
    dtype: tf.DType
    layout: TensorLayout
    mesh_shape: Shape
    axis_parts: AxisParts
    devices: tuple[str, ...]
    slices: Slices

    def layout_under(self, axis_parts: AxisParts) -> TensorLayout:
        """The layout in a program that takes these axes apart.

        Raises:
          LayoutError: the variable is split by parts of an axis that the program does not have.
        """
        if axis_parts == self.axis_parts:
            return self.layout
        joined = self.axis_parts.layout_joined(self.layout)
        if not joined.used <= set(self.axis_parts.joined(self.mesh_shape).dimension_names):
            raise LayoutError(_OTHER_PARTS.format(name=self.name, layout=joined.to_string(self.shape)))
        return axis_parts.layout_taken_apart(joined)

    def box(self, core: int) -> tuple[slice, ...]:
        """The part of the whole value that a core holds, without padding. It may be empty."""
        sizes = self.layout.slice_shape(self.shape, self.mesh_shape)
        block = core_positions.block(core, self.layout.axes, self.mesh_shape)
        ends = self.unpadded_shape.to_integer_list
        return tuple(slice(min(b * n, e), min((b + 1) * n, e)) for b, n, e in zip(block, sizes, ends, strict=True))

    def numpy(self) -> np.ndarray:
        """The whole value, [unpadded_shape], on the host. Raises UsageError if another process has a part of it."""
        self._check_all_here()
        whole = np.empty(self.unpadded_shape.to_integer_list, self.dtype.as_numpy_dtype)
        done = set()
        for core, piece in self.slices.items():
            block = core_positions.block(core, self.layout.axes, self.mesh_shape)
            if block not in done:
                done.add(block)
                box = self.box(core)
                whole[box] = on_host(piece)[tuple(slice(b.stop - b.start) for b in box)]
        return whole

    def _check_all_here(self) -> None:
        blocks = {core: core_positions.block(core, self.layout.axes, self.mesh_shape) for core in range(self.num_cores)}
        elsewhere = set(blocks.values()) - {blocks[core] for core in self.slices}
        if elsewhere:
            raise UsageError(
                _ELSEWHERE.format(
                    elsewhere=len(elsewhere),
                    count=len(set(blocks.values())),
                    name=self.name,
                    layout=self.layout.to_string(self.shape),
                    shape=self.unpadded_shape,
                    dtype=self.dtype.name,
                )
            )

    @property
    def num_cores(self) -> int:
        """The number of cores of the whole mesh."""
        return self.mesh_shape.size

    @says_where
    def assign(self, value: Any) -> None:
        """Assigns to every core its slice of a whole array, [unpadded_shape].

        Raises:
          DtypeError: the variable's dtype cannot hold one of the numbers.
          ShapeError: the sizes differ.
        """
        array = host_array(value)
        if list(array.shape) != self.unpadded_shape.to_integer_list:
            raise ShapeError(
                f'variable "{self.name}" is [{self.unpadded_shape}]; an array of shape {array.shape} does not fit'
            )
        try:
            array = held_by(array.reshape(-1), self.dtype).reshape(array.shape)
        except (TypeError, ValueError, DtypeError) as error:
            raise DtypeError(f'variable "{self.name}" is {self.dtype.name}: {error}') from None
        sizes = self.layout.slice_shape(self.shape, self.mesh_shape)
        padded: dict[tuple[int, ...], np.ndarray | tf.Tensor] = {}
        for core, piece in self.slices.items():
            block = core_positions.block(core, self.layout.axes, self.mesh_shape)
            if block not in padded:
                part = array[self.box(core)]
                whole = np.zeros(sizes, array.dtype)
                whole[tuple(slice(n) for n in part.shape)] = part
                padded[block] = to_assign(piece, whole)
            piece.assign(padded[block])

    def own_blocks(self) -> dict[tuple[int, ...], np.ndarray]:
        """A copy of each block that a core of this process has, by the block's place in the whole value."""
        blocks: dict[tuple[int, ...], np.ndarray] = {}
        for core, piece in self.slices.items():
            block = core_positions.block(core, self.layout.axes, self.mesh_shape)
            if block not in blocks:
                blocks[block] = np.array(on_host(piece))
        return blocks

    def assign_blocks(self, blocks: Mapping[tuple[int, ...], np.ndarray]) -> None:
        """Assigns what `own_blocks` returned. Cores that have one block share it, as after `assign`."""
        shared: dict[tuple[int, ...], np.ndarray | tf.Tensor] = {}
        for core, piece in self.slices.items():
            block = core_positions.block(core, self.layout.axes, self.mesh_shape)
            if block not in shared:
                shared[block] = to_assign(piece, blocks[block])
            piece.assign(shared[block])


class VariableStore(MutableMapping[str, np.ndarray]):
    """Variables, keyed by name. `store["name"]` reads the whole value, and `store["name"] = x` assigns it. Iteration
    yields names.

    Examples:
      >>> def count(mesh):
      ...     n = mtf.get_variable(mesh, "n", [], initializer=mtf.zeros)
      ...     return mtf.assign_add(n, mtf.ones(mesh, []))
      >>> store = mtf.VariableStore()
      >>> step = mtf.function(count, mtf.SpmdMeshImpl("rows:2", ""), variables=store)
      >>> _ = step(), step()
      >>> list(store), float(store["n"])
      (['n'], 2.0)
    """

    def __init__(self) -> None:
        self._variables: dict[str, StoreEntry] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.slices(name).numpy()

    def __setitem__(self, name: str, value: Any) -> None:
        self.slices(name).assign(value)

    def __delitem__(self, name: str) -> None:
        del self._variables[self.slices(name).name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    @says_where
    def slices(self, name: str) -> StoreEntry:
        """One variable's slices. Raises GraphError, with the nearest name, if the store has no such variable."""
        if name not in self._variables:
            known = nearest(name, self._variables) or (_EMPTY if not self._variables else "")
            raise GraphError(f'no variable "{name}" in the store{known}')
        return self._variables[name]

    def axis_parts(self, names: Iterable[str], mesh_shape: Shape) -> AxisParts:
        """The axes of a mesh that are in parts for a stored variable among these; none if the store has no such
        variable."""
        kept = [self._variables[name] for name in names if name in self._variables]
        found = (v.axis_parts for v in kept if v.axis_parts and v.axis_parts.joined(v.mesh_shape) == mesh_shape)
        return next(found, WHOLE_AXES)

    def renamed(self, sources: Mapping[str, str]) -> VariableStore:
        """A store that shares slices with this one. `sources` maps each new name to the name of a variable in this
        store."""
        store = VariableStore()
        for name, source in sources.items():
            saved_names = self.slices(name if name in self else source).saved_names
            store._variables[name] = dataclasses.replace(self.slices(source), name=name, saved_names=saved_names)
        return store

    def create(
        self, variable: StoredVariable, layout: TensorLayout, mesh_impl: MeshImpl, axis_parts: AxisParts = WHOLE_AXES
    ) -> None:
        """Makes the slices of a variable, filled with zeros. The layout names parts of those mesh axes that are taken
        apart."""
        mesh_shape, dtype = axis_parts.taken_apart(mesh_impl.shape), variable.slice_dtype
        slice_shape = layout.slice_shape(variable.shape, mesh_shape)
        slices = mesh_impl.zero_slices(variable.full_name, slice_shape, dtype)
        self._variables[variable.full_name] = StoreEntry(
            name=variable.full_name,
            shape=variable.shape,
            unpadded_shape=variable.unpadded_shape,
            stacked_dims=variable.stacked_dims,
            saved_names=variable.saved_names,
            dtype=dtype,
            layout=layout,
            mesh_shape=mesh_shape,
            axis_parts=axis_parts,
            devices=mesh_impl.devices,
            slices=slices,
        )

    def check_fits(self, variable: StoredVariable, mesh_shape: Shape, devices: Sequence[str] | None = None) -> None:
        """Raises GraphError if the store holds the variable with another shape or dtype, and LayoutError if the mesh or
        the devices differ.

        `mesh_shape` has no axis in parts.
        """
        kept = self.slices(variable.full_name)
        own = (variable.shape, variable.unpadded_shape, variable.slice_dtype)
        if (kept.shape, kept.unpadded_shape, kept.dtype) != own:
            raise GraphError(
                f'the store holds variable "{kept.name}" as {described(kept.shape, kept.unpadded_shape)} '
                f"{kept.dtype.name}, and the program has {described(variable.shape, variable.unpadded_shape)} "
                f"{variable.slice_dtype.name}; give one of them another name\n  at {variable.site}"
            )
        devices = kept.devices if devices is None else tuple(devices)
        kept_mesh_shape = kept.axis_parts.joined(kept.mesh_shape)
        if (kept_mesh_shape, kept.devices) != (mesh_shape, devices):
            raise LayoutError(
                f'variable "{kept.name}" lives on mesh [{kept_mesh_shape}] of devices {_short(kept.devices)}, and the '
                f"program runs on mesh [{mesh_shape}] of devices {_short(devices)}; programs that share "
                f"a store need the same mesh and devices\n  at {variable.site}"
            )


@dataclasses.dataclass(frozen=True)
class StoreLayouts:
    """Decides the layout of a variable between steps: the store's, else a pass's choice, else the parameter rules'
    layout. Without such rules, a variable has the layout in which the program reads it."""

    store: VariableStore
    parameter_rules: LayoutRules | None = None

    def layout(self, variable: StoredVariable, layouts: LayoutTable) -> TensorLayout:
        if variable.full_name in self.store:
            self.store.check_fits(variable, layouts.whole_mesh_shape)
            return self.store.slices(variable.full_name).layout_under(layouts.axis_parts)
        if variable.full_name in layouts.kept:
            return layouts.kept[variable.full_name]
        if self.parameter_rules is None or layouts.is_chosen(variable.value):
            return layouts[variable.value]
        try:
            return layouts.under(self.parameter_rules, variable.value)
        except LayoutError as error:
            where = f'variable "{variable.full_name}", kept under the rules "{self.parameter_rules}"'
            raise LayoutError(f"{error}\n  in {where}\n  at {variable.site}") from None

    def takes(self, variable: StoredVariable, layout: TensorLayout, layouts: LayoutTable) -> bool:
        """Whether a pass may choose this layout: there are no parameter rules, and the store has no other layout for
        the variable."""
        if self.parameter_rules is not None:
            return False
        return variable.full_name not in self.store or self.layout(variable, layouts) == layout


def _short(devices: Sequence[str]) -> str:
    names = [device.rpartition("device:")[2] for device in devices]
    return ", ".join(names if len(names) <= 8 else [*names[:7], "...", names[-1]])


def handles(store: VariableStore, names: Sequence[str]) -> dict[str, Slices]:
    """The slices of these variables, keyed by name."""
    return {name: store.slices(name).slices for name in names}
