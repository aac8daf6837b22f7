"""What each core is handed of arrays that are fed."""

from __future__ import annotations

import numpy as np

import meshtf as mtf


def test_cores_are_handed_their_parts_and_padding_where_sizes_do_not_divide() -> None:
    x = np.arange(42, dtype=np.float32).reshape(7, 6)
    for mesh, layout in (("rows:2;cols:4", "batch:rows;d_model:cols"), ("rows:4", "batch:rows")):
        inputs = {"x": mtf.TensorSpec("batch:7 d_model:6")}
        step = mtf.function(
            lambda x: mtf.reduce_sum(mtf.square(x), reduced_dim="batch"),
            mtf.SpmdMeshImpl(mesh, layout),
            inputs=inputs,
        )
        np.testing.assert_allclose(step(x=x), (x**2).sum(0))
