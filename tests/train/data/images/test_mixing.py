"""Mixed images and a model, trained together."""

from __future__ import annotations

import numpy as np

import meshtf as mtf
from meshtf.models import ResNet
from meshtf.train import Trainer, Training
from meshtf.train.data import CentralCrop, CutMix, ImageArrays, ImageFormat, ImageTask, Mixup


def bars(count: int) -> ImageArrays:
    """Bars that lie, and bars that stand."""
    random = np.random.default_rng(0)
    labels = np.arange(count) % 2
    pixels = random.integers(0, 60, [count, 8, 8, 1]).astype(np.uint8)
    for image, label, place in zip(pixels, labels, random.integers(0, 8, count), strict=True):
        if label:
            image[place] = 255
        else:
            image[:, place] = 255
    return ImageArrays(pixels, labels)


def test_a_model_learns_from_mixed_images_and_is_judged_by_whole_ones() -> None:
    task = ImageTask(
        bars(192),
        num_classes=2,
        format=ImageFormat(size=8, channels=1, mean=(0.5,), std=(0.25,)),
        held_out=bars(30),
        crop=CentralCrop(1.0),
        evaluation_crop=CentralCrop(1.0),
        augmentations=(),
        mixes=(Mixup(0.2), CutMix(1.0)),
    )
    model = ResNet(num_classes=2, stage_sizes=(1,), width=8, block="basic", stem="plain")
    optimizer = mtf.optimize.MomentumOptimizer(0.05, momentum=0.9)
    trainer = Trainer(Training(model, task, optimizer, "rows:2", "batch:rows", batch_size=32, num_steps=30))
    batches = trainer.batches()
    first = next(batches)
    weights = np.asarray(first["labels"])
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)
    assert ((weights > 0.01) & (weights < 0.99)).any()
    for _ in range(30):
        trainer.train_step(**next(batches))
    evaluation = trainer.evaluate()
    assert evaluation is not None
    right, count = evaluation.sums["accuracy"]
    assert count == 30
    assert right >= 27
