"""Describes what will run, in words."""

from __future__ import annotations

import meshtf as mtf
from meshtf.errors import counted
from meshtf.lowering.report.text_table import bytes_text
from meshtf.train.training import Training


def one_line(training: Training, train_step: mtf.Function) -> str:
    """Returns one line on the model, the task and the mesh, with the memory per core and the size of a step."""
    report = train_step.report()
    shape = train_step.lowering.mesh_impl.shape
    cores = "1 core" if shape.size == 1 else f"{shape.size} cores"
    tokens = training.tokens_per_step
    step = f"{counted(training.batch_size, 'example')}" + ("" if tokens is None else f" ({counted(tokens, 'token')})")
    parts = [
        f"{type(training.model).__name__} on {training.task.name}: {counted(num_parameters(train_step), 'parameter')}",
        f"mesh [{shape}] ({cores})",
        f"layout [{training.layout_text}]",
        *_products(train_step),
        f"{bytes_text(report.memory.peak).strip()} per core",
        f"{step} a step, {counted(training.num_steps, 'step')}",
    ]
    return ", ".join(parts)


def described(training: Training, train_step: mtf.Function) -> str:
    """Returns that line, the descriptions of model, task and optimizer, and every parameter."""
    variables = train_step.graph.trainable_variables
    width = max(len(variable.full_name) for variable in variables)
    return "\n".join(
        [
            one_line(training, train_step),
            "",
            f"model:         {training.model}",
            f"task:          {training.task}",
            f"optimizer:     {training.optimizer}",
            f"parameters:    {num_parameters(train_step):,}",
            *(f"  {v.full_name:<{width}}  [{v.unpadded_shape}] {v.slice_dtype.name}" for v in variables),
        ]
    )


def _products(program: mtf.Function) -> list[str]:
    """Describes the precision of float32 products. It can be chosen only if XLA compiles the program."""
    mesh_impl = program.lowering.mesh_impl
    return [f"float32 products in {mesh_impl.float32_products}"] if mesh_impl.compiles_programs else []


def num_parameters(program: mtf.Function) -> int:
    """Returns the number of trained numbers, without padding."""
    return sum(variable.unpadded_shape.size for variable in program.graph.trainable_variables)
