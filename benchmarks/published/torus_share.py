"""Predicts the share of a step for sums of gradients: ResNet-50 on 256, 1,024 and 4,096 chips of TPU v3.

    python -m benchmarks.published.torus_share

Sums of gradients and gathers of updated weights use both axes of the torus. The update of each weight is split over the
cores. The statistics of batch normalization are over 64 images. Nothing runs, and no device is needed.
"""

from __future__ import annotations

import dataclasses

from benchmarks.published.trainings import RESNET, Training
from meshtf.costs import CollectiveTime, Prediction, load_machine, predict
from meshtf.lowering.report.report import Report

IMAGES_OF_GROUP = 64

CASES = ((256, 8192), (1024, 32768), (4096, 131072), (256, 32768), (4096, 32768))
"""Chips and images per step: first with 16 images per core, then with the published number."""


def training_on(chips: int, batch_size: int) -> Training:
    """Returns the training on this many chips, with two cores each."""
    cores = 2 * chips
    cores_of_group = max(1, IMAGES_OF_GROUP * cores // batch_size)
    own = [binding for binding in RESNET[0].bindings if "axis_parts" not in binding]
    parts = f"Training.axis_parts = 'rows:{cores // cores_of_group}x{cores_of_group}'"
    whole = "batch:rows;batch_groups:rows"
    if cores_of_group > 1:
        own.append(parts)
        whole = RESNET[0].layout
    return dataclasses.replace(
        RESNET[0], mesh_shape=f"rows:{cores}", layout=whole, batch_size=batch_size, bindings=tuple(own)
    )


def seconds_by_purpose(report: Report, prediction: Prediction) -> tuple[float, float]:
    """Returns the exposed seconds of collectives for batch normalization, and of all other collectives."""
    statistics = others = 0.0
    for record, time in zip(report.operations, prediction.operations, strict=True):
        if record.category == "collective":
            if "batch_norm" in record.label:
                statistics += time.exposed_seconds
            else:
                others += time.exposed_seconds
    return statistics, others


def main() -> None:
    print("| chips | images a step | step, ms | gradients and weights, ms | share | statistics, ms | on the torus |")
    print("|---|---|---|---|---|---|---|")
    for chips, batch_size in CASES:
        report = training_on(chips, batch_size).report()
        found = predict(report, load_machine("v3"))
        statistics, others = (1e3 * seconds for seconds in seconds_by_purpose(report, found))
        step = 1e3 * found.seconds
        numbers = (f"{step:.1f}", f"{others:.2f}", f"{others / step:.1%}", f"{statistics:.2f}")
        cells = (f"{chips:,}", f"{batch_size:,}", *numbers, _links(found.collectives))
        print(f"| {' | '.join(cells)} |", flush=True)


def _links(collectives: tuple[CollectiveTime, ...]) -> str:
    """Returns the links of the collective that sends the most bytes."""
    return max(collectives, key=lambda each: each.bytes_sent).links


if __name__ == "__main__":
    main()
