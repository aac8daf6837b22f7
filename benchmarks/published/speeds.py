"""Compares published times of training steps with the times that the cost model predicts.

    python -m benchmarks.published.speeds
    python -m benchmarks.published.speeds --only lingvo

All rows use one description of the machine (`mtf.costs.load_machine`), and nothing is fitted to a row. Nothing runs,
and no device is needed. docs/cost_model.md has the table, and the facts that the papers omit.
"""

from __future__ import annotations

import argparse
import dataclasses
import math

from benchmarks.measuring.machine import machine
from benchmarks.published.trainings import GSHARD, LINGVO, RESNET, LingvoModel, Training
from meshtf.costs import Prediction, load_machine, predict


@dataclasses.dataclass(frozen=True)
class Published:
    """A training, and its published speed.

    Attributes:
      training: the training, planned as it was published.
      seconds: the seconds of a step.
      told: the speed in the words of the source.
      machine: the machine that it ran on.
    """

    training: Training
    seconds: float
    told: str
    machine: str = "v3"

    def predicted(self) -> Prediction:
        return predict(self.training.report(), load_machine(self.machine))


_LINGVO_TOKENS = (3.7e3, 18e3, 62e3, 51.53e3, 1.4e3, 53.8e3, 12.5e3)
"""Tokens per second, tasks/lm/params/synthetic_packed_input.py of Lingvo, in the order of `LINGVO`."""

_GSHARD_STEPS = (0.72, 2.15, 1.05, 3.28, 0.67, 2.16)
"""Steps per second, table 3 of Lepikhin et al. 2020, in the order of `GSHARD`."""

_RESNET_IMAGES = 1.05e6
"""Images per second, Ying et al. 2018."""

_LAMDA_UTILIZATION, _LAMDA_PARAMETERS, _V3_PEAK = 0.565, 137e9, 61.5e12  # of a core


def _as_published(own: LingvoModel) -> Training:
    return own.two_dimensional().with_plain_attention()


def _lamda(products: int, reading: str) -> Published:
    """LaMDA at 56.5 % of peak (Thoppilan et al. 2022). Each of `products` takes 2 FLOPs per weight and token."""
    training = _as_published(LINGVO[-1])
    flops = 2 * products * _LAMDA_PARAMETERS * training.batch_size * training.length
    return Published(training, flops / (_LAMDA_UTILIZATION * _V3_PEAK * 2048), f"56.5 % of peak, {reading}")


def _tokens(training: Training) -> int:
    return training.batch_size * training.length


PUBLISHED = (
    *(
        Published(own, _tokens(own) / speed, f"{speed:,.0f} tokens/s")
        for own, speed in zip(map(_as_published, LINGVO), _LINGVO_TOKENS, strict=False)
    ),
    _lamda(3, "without recomputation"),
    _lamda(4, "with recomputation"),
    *(
        Published(own.with_plain_attention(), 1 / steps, f"{steps} steps/s")
        for own, steps in zip(GSHARD, _GSHARD_STEPS, strict=True)
    ),
    *(Published(own, own.batch_size / _RESNET_IMAGES, "1.05 M images/s") for own in RESNET),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose names have this text")
    arguments = parser.parse_args()
    print(machine())
    titles = ("published", "predicted", "ratio", "products", "other", "update", "sent", "% peak")
    print(f"{'training':30} {'as told':38}" + "".join(f"{title:>10}" for title in titles))
    for row in PUBLISHED:
        if arguments.only.lower() in row.training.name.lower():
            found = row.predicted()
            parts = (found.parts.products, found.parts.elementwise, found.parts.update, found.parts.communication)
            numbers = (row.seconds, found.seconds, found.seconds / row.seconds, *parts, 100 * found.share_of_peak)
            print(f"{row.training.name:30} {row.told:38}" + "".join(f"{_short(x):>10}" for x in numbers), flush=True)


def _short(x: float) -> str:
    """The number with three digits."""
    return f"{x:.{max(0, 2 - math.floor(math.log10(abs(x))))}f}" if x else "0"


if __name__ == "__main__":
    main()
