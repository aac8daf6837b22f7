"""AutoAugment: pairs of changes that a search found to be good for ImageNet."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import gin
import numpy as np
import tensorflow as tf

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations.changes import CHANGES, changed

Step: TypeAlias = "tuple[str, float, int]"
"""The name of a change, its probability, and its level from 0 to 9."""

MOST_LEVEL = 9

IMAGENET_POLICY: tuple[tuple[Step, Step], ...] = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("auto_contrast", 0.6, 5)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 4), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 7)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 2)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 8), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("colour", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 2)),
    (("equalize", 0.0, 7), ("equalize", 0.8, 8)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("colour", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("colour", 1.0, 2)),
    (("colour", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 8)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, 9)),
    (("colour", 0.4, 0), ("equalize", 0.6, 3)),
    (("equalize", 0.4, 7), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("auto_contrast", 0.6, 5)),
    (("invert", 0.6, 4), ("equalize", 1.0, 8)),
    (("colour", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 8), ("equalize", 0.6, 3)),
)
"""The policy that the paper found for ImageNet, the same as in torchvision. Five pairs are there twice, and so are
drawn twice as often."""

_FACTORS = ("brightness", "colour", "contrast", "sharpness")
_NAMES = tuple(CHANGES)
_NO_STEP = """\
AutoAugment.policy is a list of pairs of changes, each (name, probability from 0 to 1, level from 0 to 9), and has \
{step!r}{hint}"""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class AutoAugment:
    """Makes two changes to each image, one after the other, each with its probability. It is an `Augmentation`.

    A pair of changes is drawn from a policy, by default that for ImageNet (Cubuk et al. 2019, "AutoAugment"). Levels go
    evenly over the paper's ranges:

    | change | level 0 | level 9 |
    |---|---|---|
    | brightness, colour, contrast, sharpness | a factor of 0.1 | a factor of 1.9 |
    | rotate | 0 degrees | 30 degrees, to either side |
    | shear_x, shear_y | 0 | 0.3, to either side |
    | translate_x, translate_y | 0 | 0.45 of the image, to either side |
    | posterize | 8 bits | 4 bits, rounded between |
    | solarize | only values from 256 on, so none | all values |

    The other changes have no strength: auto_contrast, equalize, identity and invert.

    Attributes:
      policy: pairs of (name, probability, level).

    Raises:
      ConfigurationError: if the policy is empty, or not made of such pairs.
    """

    policy: Sequence[Sequence[Step]] = IMAGENET_POLICY

    def __post_init__(self) -> None:
        if not isinstance(self.policy, list | tuple) or not self.policy:
            given = "is empty" if isinstance(self.policy, list | tuple) else f"is {self.policy!r}"
            raise ConfigurationError(f"AutoAugment.policy {given}, and must have a pair of changes or more")
        for pair in self.policy:
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise ConfigurationError(_NO_STEP.format(step=pair, hint=""))
            for step in pair:
                _check_step(step)
        # tf.function hashes this object, and the lists that gin passes have no hash.
        object.__setattr__(self, "policy", tuple(tuple(map(tuple, pair)) for pair in self.policy))

    def __call__(self, image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        pair_seed, chance_seed, sign_seed = (tf.random.experimental.stateless_fold_in(seed, i) for i in range(3))
        pair = tf.random.stateless_uniform([], pair_seed, 0, len(self.policy), tf.int32)
        chances = tf.random.stateless_uniform([2], chance_seed)
        sides = tf.cast(tf.random.stateless_uniform([2], sign_seed, 0, 2, tf.int32) * 2 - 1, tf.float32)
        table = np.array([[_as_numbers(*step) for step in pair] for pair in self.policy], np.float32)
        numbers = tf.gather(tf.constant(table), pair)
        for n in range(2):
            change, probability, strength, own_sign = tf.unstack(numbers[n])
            choice = tf.where(chances[n] < probability, tf.cast(change, tf.int32), _NAMES.index("identity"))
            sign = tf.where(tf.equal(own_sign, 0.0), sides[n], own_sign)
            image = changed(_NAMES, image, choice, strength, sign)
        return image


def _as_numbers(name: str, probability: float, level: int) -> tuple[float, float, float, float]:
    """Returns the number of a change, its probability, its strength, and its sign, which is 0 if it is drawn."""
    share = level / MOST_LEVEL
    if name not in _FACTORS:
        return _NAMES.index(name), probability, share, 0.0
    return _NAMES.index(name), probability, abs(2 * share - 1), 1.0 if share > 0.5 else -1.0


def _check_step(step: Any) -> None:
    hint = ""
    if isinstance(step, list | tuple) and len(step) == 3:
        name, probability, level = step
        are_numbers = isinstance(probability, int | float) and isinstance(level, int)
        if name in CHANGES and are_numbers and 0 <= probability <= 1 and 0 <= level <= MOST_LEVEL:
            return
        hint = "" if name in CHANGES else nearest(str(name), CHANGES)
    raise ConfigurationError(_NO_STEP.format(step=step, hint=hint))
