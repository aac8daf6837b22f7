"""The optimizer's state of Mesh TensorFlow's checkpoints: the next update is that which it would have made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.checkpoint.conversion.imported_models import all_interpreted, run
from tests.checkpoint.conversion.test_mesh_tensorflow import CONFIG, write_v1, write_v2

STEP = 1000
MODEL, WIDE, HEADS, D_KV = 128, 192, 2, 64  # as many of the heads together as of the model: rows and columns tie

Arrays = dict[str, np.ndarray]


def weights(random: np.random.Generator) -> Arrays:
    """Of T5 1.0 with a layer in each stack."""
    shapes = {"shared/embedding": (130, MODEL)}
    for stack, layers in (("encoder", ("SelfAttention", "")), ("decoder", ("SelfAttention", "EncDecAttention", ""))):
        shapes[f"{stack}/block_000/layer_000/SelfAttention/relative_attention_bias"] = (HEADS, 32)
        shapes[f"{stack}/final_layer_norm/scale"] = (MODEL,)
        for number, attention in enumerate(layers):
            scope = f"{stack}/block_000/layer_{number:03d}"
            shapes[f"{scope}/layer_norm/scale"] = (MODEL,)
            if attention:
                shapes.update({f"{scope}/{attention}/{x}": (MODEL, HEADS * D_KV) for x in "qkv"})
                shapes[f"{scope}/{attention}/o"] = (HEADS * D_KV, MODEL)
            else:
                shapes[f"{scope}/DenseReluDense/wi/kernel"] = (MODEL, WIDE)
                shapes[f"{scope}/DenseReluDense/wo/kernel"] = (WIDE, MODEL)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def largest_axes(x: np.ndarray) -> tuple[int, int] | None:
    """The largest axis and the second, the first of equal ones before the other."""
    order = sorted(range(x.ndim), key=lambda axis: -x.shape[axis])
    return None if x.ndim < 2 or x.shape[order[1]] < 128 else (order[0], order[1])


def adafactor_slots(values: Arrays, random: np.random.Generator) -> Arrays:
    slots: Arrays = {}
    for name, x in values.items():
        squares = np.square(random.standard_normal(x.shape, np.float32)) + np.float32(0.1)
        slots[f"{name}_slot_m"] = random.standard_normal(x.shape, np.float32)
        if (axes := largest_axes(x)) is None:
            slots[f"{name}_slot_v"] = squares
        else:
            slots[f"{name}_slot_vr"], slots[f"{name}_slot_vc"] = squares.mean(axes[0]), squares.mean(axes[1])
    return slots


def adafactor_update(name: str, x: np.ndarray, slots: Arrays, grad: np.ndarray) -> np.ndarray:
    """Mesh TensorFlow's, with beta1 = 0.9."""
    x, grad = x.astype(np.float64), grad.astype(np.float64)
    kept = 1 - (STEP + 1) ** -0.8
    squares = np.square(grad) + 1e-30
    if (axes := largest_axes(x)) is None:
        direction = grad / np.sqrt(kept * slots[f"{name}_slot_v"] + (1 - kept) * squares)
    else:
        vr = kept * slots[f"{name}_slot_vr"] + (1 - kept) * squares.mean(axes[0])
        vc = kept * slots[f"{name}_slot_vc"] + (1 - kept) * squares.mean(axes[1])
        direction = grad / np.sqrt(np.expand_dims(vr / vr.mean(), axes[0]) * np.expand_dims(vc, axes[1]))
    direction /= max(1.0, np.sqrt(np.square(direction).mean()))
    change = direction * min((STEP + 1) ** -0.5, 0.01) * max(np.sqrt(np.square(x).mean()), 1e-3)
    return x - (0.9 * slots[f"{name}_slot_m"] + 0.1 * change)


def adam_update(name: str, x: np.ndarray, slots: Arrays, grad: np.ndarray) -> np.ndarray:
    """That with which Mesh TensorFlow trains BERT, and a rate of 0.01."""
    m = 0.9 * slots[f"{name}/adam_m"].astype(np.float64) + 0.1 * grad
    v = 0.999 * slots[f"{name}/adam_v"].astype(np.float64) + 0.001 * np.square(grad.astype(np.float64))
    return x - 0.01 * (m / (np.sqrt(v) + 1e-6))


def adam_slots(values: Arrays, random: np.random.Generator) -> Arrays:
    slots = {f"{name}/adam_m": random.standard_normal(x.shape, np.float32) for name, x in values.items()}
    return {**slots, **{f"{name}/adam_v": np.square(slots[f"{name}/adam_m"]) for name in values}}


def here(name: str) -> str:
    """What a weight is called in meshtf."""
    if name == "shared/embedding":
        return "embedding/weights"
    stack, *inner = name.split("/")
    if name.endswith(("final_layer_norm/scale", "relative_attention_bias")):
        return f"{stack}/final/norm/scale" if "norm" in name else f"{stack}/relative_attention_bias"
    layer = int(inner[1][-3:])
    sublayers = ("self_attention", "feed_forward") if stack == "encoder" else SUBLAYERS
    rest = "norm/scale" if inner[2] == "layer_norm" else "/".join(inner[3:])
    return f"{stack}/layer_000/{sublayers[layer]}/{rest}"


SUBLAYERS = ("self_attention", "cross_attention", "feed_forward")


def as_here(name: str, x: np.ndarray) -> np.ndarray:
    return x.T if name.endswith("relative_attention_bias") else x


def in_place(variable: mtf.Variable, x: np.ndarray) -> mtf.Tensor:
    """A constant of the variable's shape, whose padding is zero."""
    sizes, padded = variable.unpadded_shape.to_integer_list, variable.shape.to_integer_list
    widths = [(0, whole - size) for size, whole in zip(sizes, padded, strict=True)]
    return mtf.constant(variable.mesh, np.pad(x.reshape(sizes), widths), variable.shape)


def write(folder: Path, tensors: Arrays, writer: Callable[[Path, Arrays], None] = write_v2) -> None:
    folder.mkdir()
    writer(folder / f"model.ckpt-{STEP}", tensors)
    sizes = {"d_ff = 12": f"d_ff = {WIDE}", "d_kv = 4": f"d_kv = {D_KV}", "num_layers = 2": "num_layers = 1"}
    text = CONFIG.format(activation="'relu'")
    for old, new in sizes.items():
        text = text.replace(old, new)
    (folder / "operative_config.gin").write_text(text)


@pytest.mark.parametrize(
    ("writer", "optimizer", "slots_of", "update"),
    [
        (
            write_v1,
            mtf.optimize.AdafactorOptimizer(beta_1=0.9, is_mesh_tensorflow_variant=True),
            adafactor_slots,
            adafactor_update,
        ),
        (write_v2, mtf.optimize.AdamWeightDecayOptimizer(0.01), adam_slots, adam_update),
    ],
)
def test_the_next_update_is_the_originals(
    writer: Callable[[Path, Arrays], None],
    optimizer: mtf.optimize.Optimizer,
    slots_of: Callable[[Arrays, np.random.Generator], Arrays],
    update: Callable[[str, np.ndarray, Arrays, np.ndarray], np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    random = np.random.default_rng(0)
    values = weights(random)
    slots = slots_of(values, random)
    grads = {name: random.standard_normal(x.shape, np.float32) for name, x in values.items()}
    write(tmp_path / "source", {**values, **slots, "global_step": np.array(STEP, np.int64)}, writer)
    imported = tmp_path / "imported"
    assert run("import", "--format=mesh_tensorflow", "--optimizer_state", tmp_path / "source", imported) == 0
    said = capsys.readouterr().out
    assert f"optimizer:  {len(slots) + 1} tensors of its state" in said
    assert "left out" not in said

    names = {name: here(name) for name in values}

    def updated(model: Any, features: Mapping[str, mtf.Tensor]) -> list[mtf.Tensor]:
        """All weights, with gradients that do not depend on them."""
        mesh = model.logits(features, False).mesh
        variables = [mesh.graph.variables[name] for name in names.values()]
        assert len(variables) == len(mesh.graph.variables)
        given = [
            in_place(variable, as_here(name, grads[name])) for variable, name in zip(variables, names, strict=True)
        ]
        return optimizer.apply_grads(given, variables)

    ids = np.ones((1, 2), np.int32)
    for name, new in zip(names, all_interpreted(imported, {"inputs": ids, "targets": ids}, updated), strict=True):
        wanted = as_here(name, update(name, values[name], slots, grads[name]))
        found = new.reshape(-1)[: wanted.size]  # rows of padding come last
        assert_close(found, wanted.reshape(-1), terms=(wanted.size, FUNCTION_TERMS, 10), what=name)


def test_what_has_no_place_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    values, step = weights(random), {"global_step": np.array(STEP, np.int64)}
    flags = ("import", "--format=mesh_tensorflow", "--optimizer_state")
    slots = adafactor_slots(values, random)
    cases: dict[str, tuple[Arrays, str]] = {
        "none": ({**values, **step}, "has no optimizer's state that meshtf can use"),
        "no_step": ({**values, **slots}, "missing (1):\n    global_step"),
        "shape": (
            {**values, **slots, **step, "shared/embedding_slot_vr": np.zeros([9], np.float32)},
            "[9], and must be",
        ),
    }
    for name, (tensors, message) in cases.items():
        write(tmp_path / name, tensors)
        assert run(*flags, tmp_path / name, tmp_path / "imported") == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "imported").exists()
    whole = {"shared/embedding_slot_v": np.ones((130, MODEL), np.float32)}
    slots = {name: x for name, x in slots.items() if not name.startswith("shared/embedding_slot_v")}
    write(tmp_path / "whole", {**values, **slots, **step, **whole})
    assert run(*flags, tmp_path / "whole", tmp_path / "imported") == 0
    assert "shared/embedding_slot_v: the checkpoint keeps it whole, and meshtf as means" in capsys.readouterr().out
    saved = SavedCheckpoint.open(tmp_path / "imported" / "checkpoints" / "step_00000000")
    assert saved.tensors["adafactor/step"].dtype == tf.int32
    assert "embedding/weights/adafactor_v" not in saved.tensors
    assert run("import", "--optimizer_state", tmp_path / "whole", tmp_path / "other") == 2
    assert "--optimizer_state is for --format=mesh_tensorflow" in capsys.readouterr().err
