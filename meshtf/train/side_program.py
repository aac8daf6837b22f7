"""Programs that use the variables of the training step: evaluation, calibration, the search for a NaN."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import meshtf as mtf
from meshtf.errors import LayoutWarning
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.training import Training


def side_program(
    fn: Callable[..., Any],
    training: Training,
    mesh_impl: MeshImpl,
    variables: mtf.VariableStore | None,
    more_inputs: Mapping[str, mtf.TensorSpec] | None = None,
) -> mtf.Function:
    """Builds a program whose inputs are the features of a batch, by name. It has the training's seed and dtypes.

    The program may lack dimensions of the training step, so it does not warn about layout rules for missing dimensions.
    The training step has checked these rules.

    Args:
      fn: the body of the program.
      training: the training whose task and batch define the features.
      mesh_impl: the mesh.
      variables: the store of the training step. None: a new store.
      more_inputs: further inputs, by name.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LayoutWarning)
        return mtf.function(
            fn,
            mesh_impl,
            inputs={**training.task.inputs(training.batch), **(more_inputs or {})},
            variables=variables,
            seed=training.seed,
            variable_dtype=training.variable_dtype,
        )
