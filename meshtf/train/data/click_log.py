"""A synthetic log of clicks, for which the best possible predictions are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gin
import numpy as np

import meshtf as mtf
from meshtf.field_checks import check_kinds
from meshtf.train._ranked_scores import area_under_curve
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.array_task import ArrayTask

NOTHING = -1
"""The id at an empty place of a bag."""


@dataclasses.dataclass(frozen=True)
class ClickLog:
    """Examples of links that were shown, and whether they were clicked.

    An example has numbers, a bag of ids for each table, and a label. The logit of a click is a function of them:

        scale * (numbers . weights + the sum over tables of the mean effect of the bag's ids + effect_0 * effect_1)

    with effect_0 and effect_1 for the first two tables. Effects and weights are hashes of the seed. A bag holds from 0
    to `bag_size` ids. A few ids of each table occur in most bags.

    Attributes:
      table_sizes: the number of ids of each table, at least two tables.
      num_numbers: the numbers of an example.
      bag_size: the most ids in a bag.
      scale: the factor of the logits. A larger one makes clicks easier to predict.
      seed: decides everything that is drawn.

    Raises:
      ConfigurationError: if a size is not a positive integer, or there are fewer than two tables.
    """

    table_sizes: Sequence[int]
    num_numbers: int = 13
    bag_size: int = 3
    scale: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = self.table_sizes if isinstance(self.table_sizes, list | tuple) else ()
        if len(sizes) < 2 or not all(isinstance(n, int) and n > 0 for n in (*sizes, self.num_numbers, self.bag_size)):
            raise ConfigurationError(
                f"click_log needs positive integers for num_numbers, bag_size and table_sizes, and two tables; "
                f"they are {self.num_numbers!r}, {self.bag_size!r} and {self.table_sizes!r}"
            )
        check_kinds(self, ConfigurationError)

    def examples(self, count: int, part: int) -> dict[str, np.ndarray]:
        """`numbers` [count, numbers], `ids` [count, tables, bag], `labels` [count] and the `logits` behind the labels.

        Args:
          count: how many examples.
          part: the number of a part of the log. Other parts have other examples of the same function.
        """
        generator = np.random.default_rng([self.seed, 1 + part])
        numbers = (2 * generator.random((count, self.num_numbers)) - 1).astype(np.float32)
        shape = (count, len(self.table_sizes), self.bag_size)
        # The square of a uniform number: a quarter of a table's ids are in half of the places.
        ids = (generator.random(shape) ** 2 * np.array(self.table_sizes)[:, None]).astype(np.int32)
        lengths = generator.integers(0, self.bag_size + 1, shape[:2])
        ids[np.arange(self.bag_size) >= lengths[..., None]] = NOTHING
        logits = self.logits(numbers, ids)
        labels = generator.random(count) < 1 / (1 + np.exp(-logits))
        return {"numbers": numbers, "ids": ids, "labels": labels.astype(np.int32), "logits": logits}

    def logits(self, numbers: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """The logits, float64 [count], of numbers [count, numbers] and ids [count, tables, bag]."""
        weights = self._effects(np.arange(self.num_numbers), 0)
        effects = []
        for table in range(len(self.table_sizes)):
            bag = ids[:, table]
            held = np.where(bag >= 0, self._effects(bag, 1 + table), 0.0)
            effects.append(held.sum(1) / np.maximum((bag >= 0).sum(1), 1))
        return self.scale * (numbers @ weights + sum(effects) + effects[0] * effects[1])

    def _effects(self, ids: np.ndarray, group: int) -> np.ndarray:
        """A number from -1 to 1 for each id of a group: SplitMix64 (Steele et al. 2014), so no table is made."""
        x = ids.astype(np.uint64) + np.uint64((group << 40) + (self.seed % 2**15 << 48)) + np.uint64(1)
        x *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x ^ (x >> np.uint64(31))) / 2.0**63 - 1


@gin.configurable(module="meshtf.train")
def click_log(
    table_sizes: Sequence[int],
    num_numbers: int = 13,
    bag_size: int = 3,
    scale: float = 2.0,
    num_train: int = 16384,
    num_held_out: int = 4096,
    seed: int = 0,
) -> ArrayTask:
    """The task of predicting clicks: `numbers` [numbers], `ids` [tables, bag] and `labels` [], 0 or 1.

    The examples depend only on the arguments. The task's name contains the area under the curve that the log's own
    logits reach on the held-out examples. No model can expect to exceed it.

    Args:
      table_sizes: the number of ids of each table, at least two tables.
      num_numbers: the numbers of an example.
      bag_size: the most ids in a bag; the others are -1.
      scale: the factor of the logits.
      num_train: how many examples there are to train on.
      num_held_out: how many others there are to evaluate on.
      seed: decides everything that is drawn.

    Raises:
      ConfigurationError: if a size is not a positive integer, or there are fewer than two tables.
    """
    log = ClickLog(table_sizes, num_numbers, bag_size, scale, seed)
    for name, count in (("num_train", num_train), ("num_held_out", num_held_out)):
        if not isinstance(count, int) or count < 1:
            raise ConfigurationError(f"click_log.{name} must be a positive integer, and is {count!r}")
    train, held_out = log.examples(num_train, 0), log.examples(num_held_out, 1)
    best = area_under_curve(held_out.pop("logits"), held_out["labels"])
    del train["logits"]
    return ArrayTask(
        name=f"synthetic click log, whose own logits reach an area under the curve of {best:.4f}",
        shapes={
            "numbers": mtf.Shape([("numbers", num_numbers)]),
            "ids": mtf.Shape([("tables", len(table_sizes)), ("bag", bag_size)]),
            "labels": mtf.Shape([]),
        },
        train=train,
        held_out=held_out,
    )
