from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.train.data import images_on_paper


def test_a_plan_needs_sizes_and_no_images() -> None:
    specs = images_on_paper(224).inputs(mtf.Dimension("batch", 4096))
    assert str(specs["images"].shape) == "batch:4096 height:224 width:224 channels:3"
    assert (specs["images"].dtype, specs["labels"].dtype) == (tf.bfloat16, tf.int32)
