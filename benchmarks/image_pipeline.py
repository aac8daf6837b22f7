"""Measures how many images per second a host core prepares, and how many cores a target rate needs.

    python -m benchmarks.image_pipeline --target 1050000

It writes a folder of JPEG files of random smooth pictures, in the mean size of ImageNet's images. It times batches of
224 x 224: decoding, the distorted crop and the flip, then the same with colours and RandAugment, and the same from
decoded images in memory. The cost of an image is the CPU time of the process divided by the number of images. So other
work on the machine hardly affects the figure.

Then it trains small residual networks, and measures how long a step waits for its batch. Here input and steps share the
cores. So the wait shows only whether the batch is ready in time. The first table has the cost of preparing it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from meshtf.models import ResNet
from meshtf.train import Trainer, Training
from meshtf.train.data import (
    AutoAugment,
    CentralCrop,
    ClassFolders,
    ColourJitter,
    Flip,
    ImageArrays,
    ImageFormat,
    ImageTask,
    RandAugment,
    printed_letters,
)
from meshtf.train.data.images.augmentations.augmentation import Augmentation

HEIGHT, WIDTH = 400, 473
"""ImageNet's mean size."""

QUALITY = 90
COARSENESS = 8  # pixels per random value; the files then have about ImageNet's mean of 110 kB
NUM_FILES = 64
WARM_UP = 2  # batches
CORES_PER_HOST = 96

CASES: dict[str, tuple[Sequence[Augmentation], bool]] = {
    "decode, crop, flip": ([Flip()], False),
    "and AutoAugment": ([Flip(), AutoAugment()], False),
    "and colours, RandAugment": ([Flip(), ColourJitter(), RandAugment()], False),
    "decoded in memory, crop, flip": ([Flip()], True),
}


def write_images(folder: Path) -> int:
    """Writes the files of two classes, and returns their mean number of bytes."""
    random = np.random.default_rng(0)
    sizes = []
    for number in range(NUM_FILES):
        coarse = random.uniform(0, 255, [HEIGHT // COARSENESS, WIDTH // COARSENESS, 3])
        smooth = tf.image.resize(coarse, [HEIGHT, WIDTH], "bicubic").numpy() + random.normal(0, 12, [HEIGHT, WIDTH, 3])
        content = tf.io.encode_jpeg(np.clip(smooth, 0, 255).astype(np.uint8), quality=QUALITY).numpy()
        path = folder / str(number % 2) / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        sizes.append(len(content))
    return sum(sizes) // len(sizes)


def images_per_second(task: ImageTask, batch_size: int, count: int) -> tuple[float, float]:
    """Returns the images per second of all cores together, and per second of CPU time."""
    batches = task.training_batches(batch_size, seed=0)
    for _ in itertools.islice(batches, WARM_UP + math.ceil(NUM_FILES / batch_size) * task.cache_decoded):
        pass
    began, used = time.perf_counter(), time.process_time()
    for _ in itertools.islice(batches, count):
        pass
    images = count * batch_size
    return images / (time.perf_counter() - began), images / (time.process_time() - used)


def letters() -> ImageTask:
    """Letters of Matplotlib's fonts, as images that are cropped when they are read."""
    train = printed_letters().train
    pixels = (train["images"] * 255).round().astype(np.uint8)
    source = ImageArrays(pixels, train["labels"], "printed letters")
    form = ImageFormat(size=16, channels=1, mean=(0.0,), std=(1.0,))
    return ImageTask(source, 26, form, source, crop=CentralCrop(1.0), augmentations=())


def photos(folder: str) -> ImageTask:
    """JPEG files, converted to 64 x 64."""
    source = ClassFolders(folder)
    return ImageTask(source, 2, ImageFormat(size=64), source)


def waits(task: ImageTask, model: ResNet, batch_size: int, steps: int) -> tuple[float, float]:
    """Returns the mean seconds of a step, including its wait for a batch, and of this wait."""
    optimizer = mtf.optimize.MomentumOptimizer(0.01, momentum=0.9)
    trainer = Trainer(Training(model, task, optimizer, "rows:2", "batch:rows", batch_size, steps))
    batches, waited = trainer.batches(), 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            began, waited = time.perf_counter(), 0.0
        before = time.perf_counter()
        features = next(batches)
        waited += time.perf_counter() - before
        trainer.train_step(**features)
    return (time.perf_counter() - began) / steps, waited / steps


def print_waits(folder: str, steps: int) -> None:
    small = {"block": "basic", "stem": "plain"}
    cases = {
        "letters, batch 128": (letters(), ResNet(26, (1, 1, 1), 16, **small), 128),
        "JPEG files, batch 32": (photos(folder), ResNet(2, (1, 1, 1), 16, **small), 32),
    }
    print(f"{'':32}{'step, ms':>24}{'of it waiting, ms':>24}{'share':>24}")
    for name, (task, model, batch_size) in cases.items():
        step, waited = waits(task, model, batch_size, steps)
        print(f"{name:32}{step * 1e3:24,.1f}{waited * 1e3:24,.2f}{waited / step:24.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=float, default=1.05e6, help="images per second of the whole machine")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--batches", type=int, default=30)
    arguments = parser.parse_args()
    mtf.virtual_cpus(2)
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        size = write_images(Path(folder))
        print(f"JPEG files of {HEIGHT} x {WIDTH} pixels and {size / 1e3:.0f} kB, made into 224 x 224")
        cores = f"cores for {arguments.target:,.0f}/s"
        columns = (
            f"images/s, {len(os.sched_getaffinity(0))} cores",
            "images/s of a core",
            cores,
            f"hosts of {CORES_PER_HOST} cores",
        )
        print(f"{'':32}" + "".join(f"{column:>24}" for column in columns))
        for name, (augmentations, is_cached) in CASES.items():
            source = ClassFolders(folder)
            task = ImageTask(source, 2, held_out=source, augmentations=augmentations, cache_decoded=is_cached)
            together, one = images_per_second(task, arguments.batch_size, arguments.batches)
            needed = math.ceil(arguments.target / one)
            hosts = math.ceil(needed / CORES_PER_HOST)
            print(f"{name:32}{together:24,.0f}{one:24,.0f}{needed:24,}{hosts:24,}", flush=True)
        print_waits(folder, arguments.batches)


if __name__ == "__main__":
    main()
