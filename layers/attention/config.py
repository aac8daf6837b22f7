"""The sizes of attention's projections, and their initializers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import gin

import meshtf as mtf
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer
from meshtf.layers.low_rank import LowRank
from meshtf.number_checks import is_integer

PROJECTIONS = ("q", "k", "v", "o")


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class AttentionInitializers:
    """Initializers of the kernels of queries, keys, values and outputs. Their default is that of `dense`.

    Attributes:
      q: the initializer of `project_queries`.
      k: the initializer of `project_keys_and_values` for the keys.
      v: the initializer of `project_keys_and_values` for the values.
      o: the initializer of `project_output`.

    Examples:
      >>> outputs = mtf.layers.AttentionInitializers(o=mtf.layers.NormalInitializer(stddev=0.01))
      >>> mtf.layers.AttentionConfig(num_heads=2, d_kv=4, initializers=outputs).initializers.o
      NormalInitializer(stddev=0.01)
    """

    q: DenseInitializer = dataclasses.field(default_factory=VarianceScalingInitializer)
    k: DenseInitializer = dataclasses.field(default_factory=VarianceScalingInitializer)
    v: DenseInitializer = dataclasses.field(default_factory=VarianceScalingInitializer)
    o: DenseInitializer = dataclasses.field(default_factory=VarianceScalingInitializer)

    def __post_init__(self) -> None:
        check_kinds(self)


@gin.configurable(module="meshtf.layers")
def t5_attention_initializers(d_kv: int) -> AttentionInitializers:
    """T5's initializers for logits that are not scaled (Raffel et al. 2020). q has the deviation (d_model · d_kv)^-0.5.

    Examples:
      >>> initializers = mtf.layers.t5_attention_initializers(d_kv=64)
      >>> mtf.layers.AttentionConfig(num_heads=8, d_kv=64, query_scale=1.0, initializers=initializers).num_heads
      8
    """
    if not is_integer(d_kv, 1):
        raise ValueError(f"t5_attention_initializers: d_kv must be a positive integer, and is {d_kv!r}")
    plain = VarianceScalingInitializer(distribution="untruncated_normal")
    return AttentionInitializers(q=dataclasses.replace(plain, scale=1.0 / d_kv), k=plain, v=plain, o=plain)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class QueryKeyNorm:
    """Norms of queries and keys, after their projections and before rotation and scale (Henry et al. 2020).

    Attributes:
      norm: the norm, such as `RmsNorm`. Its variables are in the scopes `queries` and `keys`.
      over_heads: whether it normalizes all heads together, with a scale for each element of each head (OLMo 2). By
        default it normalizes over `d_kv` alone, with one scale for all heads (Qwen3, Gemma 3).

    Examples:
      >>> from meshtf.layers.transformer import RmsNorm
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4, query_key_norm=mtf.layers.QueryKeyNorm(RmsNorm()))
      >>> _ = mtf.layers.project_queries(mtf.ones(mesh, "length:16 d_model:8"), config)
      >>> [(name, v.shape) for name, v in mesh.graph.variables.items()]
      [('q', Shape[d_model:8 heads:2 d_kv:4]), ('queries/norm/scale', Shape[d_kv:4])]
    """

    norm: Callable[[mtf.Tensor, Sequence[mtf.Dimension]], mtf.Tensor]
    over_heads: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)

    def applied(self, x: mtf.Tensor, heads: mtf.Shape, d_kv: mtf.Dimension, scope: str) -> mtf.Tensor:
        """x [.., heads, d_kv], normalized."""
        with mtf.variable_scope(scope):
            return self.norm(x, [*heads, d_kv] if self.over_heads else [d_kv])


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class AttentionConfig:
    """Sizes and options of the projections.

    Attributes:
      num_heads: the number of the queries' heads.
      d_kv: the size of a key, a query and a value of one head.
      num_kv_heads: the number of heads of keys and values: as many as of queries (None, multi-head attention), one
        (multi-query, Shazeer 2019), or a number that divides `num_heads` (grouped-query, Ainslie et al. 2023).
      use_bias: whether each projection adds a bias, zero at first; or the names of those that do, such as ("q", "k",
        "v").
      query_scale: the factor of queries; by default d_kv^-0.5. T5 has 1.0, because its initializer has the factor.
      initializers: the initializers of the kernels.
      low_rank: adapters of the kernels, if given.
      query_key_norm: the norms of queries and keys, if given.

    Examples:
      >>> grouped = mtf.layers.AttentionConfig(num_heads=8, num_kv_heads=2, d_kv=16)
      >>> grouped.query_heads, grouped.memory_heads
      (Shape[heads:2 queries_per_head:4], Shape[heads:2])
    """

    num_heads: int
    d_kv: int
    num_kv_heads: int | None = None
    use_bias: bool | Sequence[str] = False
    query_scale: float | None = None
    initializers: AttentionInitializers = dataclasses.field(default_factory=AttentionInitializers)
    low_rank: LowRank | None = None
    query_key_norm: QueryKeyNorm | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_heads", "d_kv", "num_kv_heads")
        for name in () if isinstance(self.use_bias, bool) else self.use_bias:
            if name not in PROJECTIONS:
                raise ValueError(
                    f"AttentionConfig: use_bias names {name!r}, but the projections are {', '.join(PROJECTIONS)}"
                )
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"AttentionConfig: num_heads={self.num_heads} is not a multiple of num_kv_heads={self.num_kv_heads}; "
                f"each head of keys and values serves the same number of query heads"
            )

    def has_bias(self, projection: str) -> bool:
        """Whether "q", "k", "v" or "o" adds a bias."""
        return self.use_bias if isinstance(self.use_bias, bool) else projection in self.use_bias

    @property
    def query_heads(self) -> mtf.Shape:
        """[heads], or [heads, queries_per_head] with grouped queries."""
        if self.num_kv_heads is None or self.num_kv_heads in (1, self.num_heads):
            return mtf.Shape([("heads", self.num_heads)])
        return mtf.Shape([("heads", self.num_kv_heads), ("queries_per_head", self.num_heads // self.num_kv_heads)])

    @property
    def memory_heads(self) -> mtf.Shape:
        """[heads], or [] with one head of keys and values for all queries."""
        is_shared = self.num_kv_heads == 1 and self.num_heads > 1
        return mtf.Shape([]) if is_shared else self.query_heads[:1]

    @property
    def d_kv_dim(self) -> mtf.Dimension:
        return mtf.Dimension("d_kv", self.d_kv)
