"""Low-rank adapters: small trained products, added to those of large frozen kernels (LoRA, Hu et al. 2022).

A kernel of [4096, 4096] has 16.8 million numbers. An adapter of rank 8 for it has [4096, 8] and [8, 4096]: 65,536
numbers, and only these are trained.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer

A, B, SCALE = "lora_a", "lora_b", "lora_scale"
"""The suffixes of an adapter's variables, after the name of the kernel and an underscore."""


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LowRank:
    """Adapters of the projections of attention.

    Beside a kernel `q` there are three variables: `q_lora_a` [reduced dimensions, lora_rank]; `q_lora_b` [lora_rank,
    new dimensions], zeros at first; and a number `q_lora_scale`, alpha / rank, which is not trained. The projection is
    then that of q + lora_scale · lora_a · lora_b. `meshtf-checkpoint export` merges them into one kernel.

    Attributes:
      rank: the size of the dimension `lora_rank`.
      alpha: the scale's numerator.
      projections: the projections with adapters, among "q", "k", "v" and "o".
      initializer: the initializer of `lora_a`.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4, low_rank=mtf.layers.LowRank(rank=1))
      >>> q = mtf.layers.project_queries(mtf.ones(mesh, "length:16 d_model:8"), config)
      >>> [(name, variable.shape) for name, variable in mesh.graph.variables.items()][1:3]
      [('q_lora_a', Shape[d_model:8 lora_rank:1]), ('q_lora_b', Shape[lora_rank:1 heads:2 d_kv:4])]
    """

    rank: int
    alpha: float = 16.0
    projections: Sequence[str] = ("q", "v")
    initializer: DenseInitializer = dataclasses.field(default_factory=VarianceScalingInitializer)

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "rank")
        if isinstance(self.projections, str) or not all(name in ("q", "k", "v", "o") for name in self.projections):
            raise ValueError(f"LowRank: projections must be of q, k, v and o, and are {self.projections!r}")


@language_function
def low_rank_product(x: mtf.Tensor, name: str, reduced: mtf.Shape, new: mtf.Shape, low_rank: LowRank) -> mtf.Tensor:
    """The product that an adapter adds. Makes `<name>_lora_a`, `_lora_b` and `_lora_scale` under the open scope.

    Args:
      x: [.., reduced].
      name: the name of the kernel beside it.
      reduced: the dimensions that are summed over.
      new: the dimensions that take their place.
      low_rank: the settings.

    Returns:
      [.., new], of the type of x.

    Examples:
      >>> reduced, new = mtf.convert_to_shape("hidden:8"), mtf.convert_to_shape("d_ff:32")
      >>> mtf.layers.low_rank_product(x, "wi", reduced, new, mtf.layers.LowRank(rank=2)).shape
      Shape[batch:4 d_ff:32]
    """
    rank = mtf.Shape([("lora_rank", low_rank.rank)])
    initializer = low_rank.initializer(reduced, rank)
    a = mtf.get_variable(x.mesh, f"{name}_{A}", reduced + rank, initializer=initializer)
    b = mtf.get_variable(x.mesh, f"{name}_{B}", rank + new, initializer=mtf.zeros)
    number = low_rank.alpha / low_rank.rank

    def filled(mesh: mtf.Mesh, shape: mtf.Shape, dtype: object) -> mtf.Tensor:
        return mtf.fill(mesh, number, shape, dtype)

    scale = mtf.get_variable(x.mesh, f"{name}_{SCALE}", [], initializer=filled, trainable=False)
    inner = mtf.einsum([x, a.astype(x.dtype)], output_shape=x.shape - reduced + rank)
    y = mtf.einsum([inner, b.astype(x.dtype)], output_shape=x.shape - reduced + new)
    return y * scale.astype(x.dtype)
