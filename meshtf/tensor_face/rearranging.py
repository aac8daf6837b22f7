"""Methods that rename, reorder, merge and split the dimensions of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from meshtf.call_sites import tensor_method
from meshtf.dimension import Dimension, DimensionLike, Shape, ShapeLike
from meshtf.errors import ShapeError
from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


class Rearranging(Face):
    """Methods that keep the elements and change their dimensions."""

    @tensor_method("x.rename")
    def rename(self, names: Mapping[str, str | Dimension] | None = None, /, **more: str | Dimension) -> Tensor:
        """Renames dimensions, as in `x.rename(length="memory")`; see `mtf.rename_dimension`.

        All are renamed at once, so two dimensions can swap names. Use a dict for names that are no Python identifiers.
        """
        new = self._renamed(_pairs(names, more))
        changed = [(own.name, d.name) for own, d in zip(self.shape, new, strict=True) if own.name != d.name]
        if len(changed) == 1:
            return registered("rename_dimension")(self, *changed[0])
        return registered("reshape")(self, new, name="rename_dimension")

    def _renamed(self, names: Mapping[str, str | Dimension]) -> Shape:
        sizes = {old: self.shape.get_dim_by_name(old).size for old in names}
        for old, name in names.items():
            if isinstance(name, Dimension) and name.size != sizes[old]:
                raise ShapeError(f'dimension "{old}" has size {sizes[old]}, and "{name.name}" has size {name.size}')
        new = [names.get(d.name, d.name) for d in self.shape]
        words = [name if isinstance(name, str) else name.name for name in new]
        for word in words:
            if words.count(word) > 1:
                raise ShapeError(f'[{self.shape}] would have dimension "{word}" twice; choose another name')
        return Shape([Dimension(word, d.size) for word, d in zip(words, self.shape, strict=True)])

    @tensor_method("x.transpose")
    def transpose(self, *dims: ShapeLike) -> Tensor:
        """The dimensions in another order, as in `x.transpose("length", "batch")`; see `mtf.transpose`."""
        return registered("transpose")(self, self.shape.only(*dims))

    @tensor_method("x.reshape")
    def reshape(self, new_shape: ShapeLike) -> Tensor:
        """The elements in row-major order over another shape, as in `x.reshape("elements:32")`; see `mtf.reshape`."""
        return registered("reshape")(self, new_shape)

    @tensor_method("x.rearrange")
    def rearrange(self, pattern: str, /, **sizes: int) -> Tensor:
        """Splits, merges or moves dimensions, as in `x.rearrange("a (b c) -> b a c", b=2)`; see `mtf.rearrange`."""
        return registered("rearrange")(self, pattern, **sizes)

    @tensor_method("x.split")
    def split(self, dim: DimensionLike, num_or_size_splits: int | Sequence[int]) -> list[Tensor]:
        """Pieces along a dimension, as in `q, k = x.split("heads", 2)`; see `mtf.split`."""
        return registered("split")(self, self.shape[self.shape.axis(dim)], num_or_size_splits)

    @tensor_method("x.flatten")
    def flatten(self, dims: ShapeLike, new_name: str) -> Tensor:
        """Merges neighbouring dimensions, as in `x.flatten("heads d_kv", "d_model")`; see `mtf.replace_dimensions`."""
        old = self.shape.only(dims)
        return registered("replace_dimensions")(self, old, Dimension(new_name, old.size))

    @tensor_method("x.unflatten")
    def unflatten(self, dim: DimensionLike, new_dims: ShapeLike) -> Tensor:
        """Splits a dimension, as in `x.unflatten("d_model", "heads:8 d_kv:64")`; see `mtf.replace_dimensions`."""
        return registered("replace_dimensions")(self, self.shape[self.shape.axis(dim)], new_dims)


def _pairs(names: object, more: Mapping[str, str | Dimension]) -> dict[str, str | Dimension]:
    if names is not None and not isinstance(names, Mapping):
        raise ShapeError(f'write the old name and the new one as x.rename(length="memory"), not {names!r}')
    pairs = {**cast("Mapping[str, object]", names or {}), **more}
    for old, name in pairs.items():
        if not isinstance(name, str | Dimension):
            raise ShapeError(f'the new name of "{old}" must be a name, not {name!r}')
    return cast("dict[str, str | Dimension]", pairs)
