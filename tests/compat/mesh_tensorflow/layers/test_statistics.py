"""Correlations, means of groups, noise and cut gradients are NumPy's."""

from __future__ import annotations

import numpy as np

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import BATCH, HIDDEN, evaluated, initial

X = initial("x", [BATCH.size, HIDDEN.size])


def _program(mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    x = mtf.import_tf_tensor(mesh, X, [BATCH, HIDDEN])
    jitter = mtf.layers.multiplicative_jitter(x, 0.1) / x
    cut, kept = (mtf.layers.clip_activation_gradient(x, size) for size in (0.5, None))
    grads = [mtf.gradients([mtf.reduce_sum(y * 3.0)], [x])[0] for y in (cut, kept)]
    return {
        "corr": mtf.layers.corr(x, HIDDEN),
        "means": mtf.layers.compress_mean(x, BATCH, 4),
        "jitter": jitter,
        "cut": grads[0],
        "kept": grads[1],
        "einsum": mtf.layers.us_einsum([x, x], [BATCH]),
    }


def test_numbers() -> None:
    found = evaluated(_program)
    assert_close(found["corr"], np.corrcoef(X.T.astype(np.float64)), terms=(BATCH.size,) * 4)
    assert_close(found["means"], X.reshape(2, 4, HIDDEN.size).mean(1), terms=4)
    assert 0.9 <= found["jitter"].min() < found["jitter"].max() <= 1.1 + 1e-6
    np.testing.assert_allclose(found["cut"], np.full_like(X, 0.5), rtol=1e-5)  # 3 over its root mean square, times 0.5
    np.testing.assert_array_equal(found["kept"], np.full_like(X, 3.0))
    assert_close(found["einsum"], (X * X).sum(1), terms=HIDDEN.size)
    assert not mtf.layers.unit_scaling_convention()
