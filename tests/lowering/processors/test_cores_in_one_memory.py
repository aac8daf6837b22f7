"""A program that runs once is not traced where that costs more than it saves, and computes the same."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.processors import cores_in_one_memory
from meshtf.tensorflow_private import traced_functions


def initial_values(initializers: dict[str, object]) -> dict[str, np.ndarray]:
    """Those of a variable [rows:6 columns:4] for each initializer, on four virtual CPUs."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        made = [
            mtf.get_variable(x.mesh, name, "rows:6 columns:4", initializer=initializer)  # type: ignore[arg-type]
            for name, initializer in initializers.items()
        ]
        return mtf.reduce_sum(mtf.add_n(made)) * x

    step = mtf.function(program, mtf.SpmdMeshImpl("a:2;b:2", "rows:a;columns:b"), {"x": mtf.TensorSpec([])})
    step.initialize()
    return {name: step.variables[name] for name in initializers}


def test_initial_values_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[object] = []
    made = tf.function

    def counted(*given: object, **options: object) -> object:
        if options.get("experimental_attributes") == traced_functions.NOT_INLINED:
            traced.append(given)
        return made(*given, **options)

    monkeypatch.setattr(tf, "function", counted)
    initializers: dict[str, object] = {
        "normal": mtf.RandomNormal(stddev=0.3),
        "uniform": mtf.RandomUniform(-0.1, 0.7),
        "number": np.full([6, 4], 0.25, np.float32),
    }
    untraced = initial_values(initializers)
    assert not traced
    monkeypatch.setattr(cores_in_one_memory, "UNTRACED_BYTES", 6 * 4 * 4 * len(initializers) - 1)
    again = initial_values(initializers)
    assert traced
    for name, value in untraced.items():
        assert np.asarray(value).tobytes() == np.asarray(again[name]).tobytes(), name
