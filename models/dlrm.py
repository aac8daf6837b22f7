"""DLRM, a recommender: embeddings of categories, their dot products, and two perceptrons."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_kinds
from meshtf.layers import EmbeddingTables, VarianceScalingInitializer
from meshtf.models._activations import in_activation_dtype
from meshtf.models._features import feature

_HE = VarianceScalingInitializer(scale=2.0, mode="fan_in", distribution="untruncated_normal")
_TABLES, _BAG = "tables", "bag"


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class DLRM:
    """The deep learning recommendation model (Naumov et al. 2019), which predicts whether a link is clicked.

    A perceptron turns an example's numbers into a vector. Each table turns the example's ids into another. The dot
    products of all pairs of these vectors, and the first vector itself, go through a second perceptron, whose output is
    the logit of a click.

    A layout splits `batch`, and the tables' `rows` over the same mesh axis: see `mtf.layers.EmbeddingTables`. Use an
    optimizer of sparse rows for the tables:

        ParameterGroups.groups = [("^embedding_tables$", @SparseAdagradOptimizer())]

    Attributes:
      table_sizes: the number of ids of each table.
      embedding_size: the size of a vector.
      bottom_sizes: the sizes of the hidden layers of the first perceptron, before its output of `embedding_size`.
      top_sizes: the sizes of the hidden layers of the second perceptron, before its output of one logit.
      capacity_factor: the room for ids in an exchange, as in `mtf.embedding_lookup`.
      num_stripes: as in `mtf.layers.EmbeddingTables`.
      pooling: "sum" or "mean", for bags of several ids.
      check_ids: whether a step with an id above its table's last raises IndexRangeError.
    """

    table_sizes: Sequence[int]
    embedding_size: int = 128
    bottom_sizes: Sequence[int] = (512, 256)
    top_sizes: Sequence[int] = (1024, 1024, 512, 256)
    capacity_factor: float | None = 2.0
    num_stripes: int = 256
    pooling: str = "sum"
    check_ids: bool = True

    def __post_init__(self) -> None:
        for name in ("bottom_sizes", "top_sizes"):
            sizes = getattr(self, name)
            given = [self.embedding_size, *sizes] if isinstance(sizes, list | tuple) else [None]
            if not all(isinstance(size, int) and size > 0 for size in given):
                raise ValueError(
                    f"DLRM: embedding_size must be a positive integer and {name} a sequence of them, such as (512, "
                    f"256); they are {self.embedding_size!r} and {sizes!r}"
                )
        check_kinds(self)
        _ = self.tables

    @property
    def tables(self) -> EmbeddingTables:
        return EmbeddingTables(
            self.table_sizes,
            mtf.Dimension("embedding", self.embedding_size),
            capacity_factor=self.capacity_factor,
            num_stripes=self.num_stripes,
            pooling=self.pooling,
            check_ids=self.check_ids,
        )

    def logits(self, features: Mapping[str, mtf.Tensor]) -> mtf.Tensor:
        """The logits [batch] of clicks, from `numbers` [batch, numbers] and `ids` [batch, tables, bag].

        A negative id is ignored.
        """
        ids, numbers = feature(features, "ids"), feature(features, "numbers")
        vectors = self.tables.pooled(ids, _TABLES, _BAG)
        bottom = _perceptron(in_activation_dtype(numbers), self.bottom_sizes, "bottom")
        bottom = mtf.layers.dense(
            bottom, [self.tables.embedding], activation="relu", kernel_initializer=_HE, name="bottom/output"
        )
        combined = mtf.concat([bottom, self._products(bottom, vectors)], "embedding")
        top = _perceptron(mtf.rename_dimension(combined, "embedding", "interactions"), self.top_sizes, "top")
        logits = mtf.layers.dense(top, [mtf.Dimension("clicks", 1)], name="top/output")
        logits = mtf.reduce_sum(logits, reduced_dim="clicks")
        return mtf.cast(logits, tf.float32) if logits.dtype.size == 2 else logits

    def _products(self, bottom: mtf.Tensor, vectors: mtf.Tensor) -> mtf.Tensor:
        """The dot products of all pairs of an example's vectors, [batch, embedding: pairs]."""
        first = mtf.reshape(bottom, [*bottom.shape.dims[:-1], (_TABLES, 1), bottom.shape[-1]])
        all_vectors = mtf.concat([first, vectors], _TABLES)
        count = all_vectors.shape.get_dim_by_name(_TABLES).size
        others = mtf.rename_dimension(all_vectors, _TABLES, "other_tables")
        batch = bottom.shape.dims[:-1]
        products = mtf.einsum([all_vectors, others], output_shape=[*batch, (_TABLES, count), ("other_tables", count)])
        flat = mtf.reshape(products, [*batch, ("pairs", count * count)])
        places = [i * count + j for i in range(count) for j in range(i)]
        chosen = mtf.constant(bottom.mesh, places, f"embedding:{len(places)}", tf.int32)
        return mtf.gather(flat, chosen, "pairs", output_shape=[*batch, ("embedding", len(places))])

    def metrics(
        self, features: Mapping[str, mtf.Tensor], is_training: bool
    ) -> dict[str, mtf.Tensor | Mapping[str, mtf.Tensor]]:
        """The "loss" and "accuracy" [batch] of `labels` [batch], 1 for a click and 0 for none.

        An evaluation also has "auc": the scores and labels from which the area under the curve of all batches follows.
        """
        logits, labels = self.logits(features), mtf.cast(feature(features, "labels"), tf.float32)
        is_right = mtf.equal(mtf.greater(logits, 0.0), mtf.greater(labels, 0.5))
        found: dict[str, mtf.Tensor | Mapping[str, mtf.Tensor]] = {
            "loss": mtf.layers.sigmoid_cross_entropy_with_logits(logits, labels),
            "accuracy": mtf.cast(is_right, tf.float32),
        }
        if not is_training:
            found["auc"] = {"scores": logits, "labels": labels}
        return found

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The "probabilities" [batch] of clicks."""
        return {"probabilities": mtf.sigmoid(self.logits(features))}


def _perceptron(x: mtf.Tensor, sizes: Sequence[int], name: str) -> mtf.Tensor:
    for number, size in enumerate(sizes):
        hidden = mtf.Dimension("hidden", size)
        x = mtf.layers.dense(x, [hidden], activation="relu", kernel_initializer=_HE, name=f"{name}/hidden_{number}")
    return x
