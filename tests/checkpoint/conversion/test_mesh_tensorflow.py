"""T5 as Mesh TensorFlow saves it: the weights of the stored models of Transformers, under its names, in its shapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from meshtf.checkpoint.conversion.operative_config import read_gin
from meshtf.checkpoint.conversion.tensorflow_checkpoint import TensorFlowCheckpoint
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from tests.checkpoint.conversion.imported_models import MODELS, expected, interpreted, run
from tests.checkpoint.conversion.test_importing import features

CONFIG = """\
import mesh_tensorflow.transformer.transformer

# Macros:
# ==============================================================================
d_ff = 12
d_kv = 4
dropout_rate = 0.1
num_heads = 2
num_layers = 7  # of neither stack

# Parameters for DenseReluDense:
# ==============================================================================
mesh_tensorflow.transformer.transformer_layers.DenseReluDense.activation = {activation}
decoder/mesh_tensorflow.transformer.transformer.make_layer_stack.layers = \\
    [@mesh_tensorflow.transformer.transformer_layers.SelfAttention]
encoder/SelfAttention.num_heads = %num_heads
encoder/make_layer_stack.num_layers = 2
decoder/make_layer_stack.num_layers = 2
run.model_type = 'bitransformer'
"""


def as_mesh_tensorflow(name: str) -> dict[str, np.ndarray]:
    """Linear kernels transposed, and the names of its blocks."""
    weights = safetensors.numpy.load_file(MODELS / name / "model.safetensors")
    return dict(
        _renamed(key, value, norm="rms_norm" if name == "t5_1_1" else "layer_norm") for key, value in weights.items()
    )


def _renamed(key: str, value: np.ndarray, norm: str) -> tuple[str, np.ndarray]:
    if key == "shared.weight":
        return "shared/embedding", value
    if key == "lm_head.weight":
        return "decoder/logits/kernel", value.T
    if match := re.fullmatch(r"(encoder|decoder)\.final_layer_norm\.weight", key):
        return f"{match[1]}/{'rms_norm' if norm == 'rms_norm' else 'final_layer_norm'}/scale", value
    match = re.fullmatch(r"(encoder|decoder)\.block\.(\d)\.layer\.(\d)\.(.*)\.weight", key)
    assert match is not None
    scope = f"{match[1]}/block_{int(match[2]):03d}/layer_{int(match[3]):03d}"
    if match[4] == "layer_norm":
        return f"{scope}/{norm}/scale", value
    ending = "/kernel" if "DenseReluDense" in key else ""
    return f"{scope}/{match[4].replace('.', '/')}{ending}", value.T


def write_v2(path: Path, tensors: dict[str, np.ndarray]) -> None:
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(path), tensor_names=names, shape_and_slices=[""] * len(names), tensors=list(tensors.values())
    )


def write_v1(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Each tensor in two slices, where it can be."""
    names, slices, data = [], [], []
    for name, x in tensors.items():
        half = x.shape[0] // 2 if x.ndim else 0
        for start, part in ((0, x[:half]), (half, x[half:])) if half else ((0, x),):
            extents = ":".join([f"{start},{len(part)}", *("-" for _ in x.shape[1:])]) if half else ""
            names.append(name)
            slices.append(f"{' '.join(map(str, x.shape))} {extents}" if half else "")
            data.append(part)
    tf.raw_ops.SaveSlices(filename=str(path), tensor_names=names, shapes_and_slices=slices, data=data)


@pytest.mark.parametrize(
    ("name", "activation", "write"),
    [("t5", "'relu'", write_v2), ("t5_1_1", "['gelu', 'linear']", write_v1)],
)
def test_logits_are_those_of_the_same_weights(
    name: str, activation: str, write: Callable[[Path, dict[str, np.ndarray]], None], tmp_path: Path
) -> None:
    tensors = as_mesh_tensorflow(name)
    tensors["shared/embedding_slot_vr"] = np.zeros([20], np.float32)
    write(tmp_path / "model.ckpt-7", {**tensors, "global_step": np.array(7, np.int64)})
    (tmp_path / "operative_config.gin").write_text(CONFIG.format(activation=activation))
    imported = tmp_path / "imported"
    assert run("import", "--format=mesh_tensorflow", tmp_path, imported, "--dtype=float32") == 0
    known = expected(name)
    distance = "RelativeBias.max_distance = 6"  # Mesh TensorFlow has 128, and no setting for it
    logits = interpreted(imported, features(known), lambda model, x: model.logits(x, False), parameters=[distance])
    np.testing.assert_allclose(logits[..., :20], known["logits"], rtol=1e-5, atol=1e-5)


def test_bfloat16_stays_as_it_is_where_that_is_asked_for(tmp_path: Path) -> None:
    tensors = {name: tf.cast(x, tf.bfloat16).numpy() for name, x in as_mesh_tensorflow("t5").items()}
    write_v2(tmp_path / "model.ckpt-7", tensors)
    (tmp_path / "operative_config.gin").write_text(CONFIG.format(activation="'relu'"))
    path = tmp_path / "model.ckpt-7"
    for dtype in ("bfloat16", "float32"):
        assert run("import", "--format=mesh_tensorflow", path, tmp_path / dtype, f"--dtype={dtype}") == 0
        saved = SavedCheckpoint.open(tmp_path / dtype / "checkpoints" / "step_00000000")
        found = saved.read("encoder/layer_001/self_attention/k").numpy()
        assert found.dtype.name == dtype
        wanted = tensors["encoder/block_001/layer_000/SelfAttention/k"].reshape(8, 2, 4)
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("name", ["a*", "[a]", "a?", "a\\b"])
def test_a_folder_whose_name_is_a_pattern(name: str, tmp_path: Path) -> None:
    for folder in (name, "aa"):
        (tmp_path / folder).mkdir()
        write_v2(tmp_path / folder / "model.ckpt-7", {folder: np.ones([2], np.float32)})
        write_v1(tmp_path / folder / "older.ckpt-6", {folder: np.ones([2], np.float32)})
    for given in (tmp_path / name, tmp_path / name / "older.ckpt-6"):
        found = TensorFlowCheckpoint.open(given)
        assert list(found.tensors) == [name]
        np.testing.assert_array_equal(found.read(name), [1.0, 1.0])


def test_what_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, imported = tmp_path / "source", tmp_path / "imported"
    source.mkdir()

    def refusal() -> str:
        assert run("import", "--format=mesh_tensorflow", source, imported) in (1, 2)
        assert not imported.exists()
        return capsys.readouterr().err

    assert "is not a TensorFlow checkpoint: give its prefix" in refusal()
    tensors = as_mesh_tensorflow("t5")
    tensors.pop("encoder/final_layer_norm/scale")
    write_v2(source / "model.ckpt-7", tensors)
    assert "operative_config.gin cannot be read: No such file" in refusal()
    (source / "operative_config.gin").write_text(CONFIG.format(activation="'relu'"))
    assert "missing (1):\n    encoder/final_layer_norm/scale" in refusal()
    (source / "operative_config.gin").write_text("run.model_type = 'lm'")
    assert "no rules for models of type 'lm'; there are for bitransformer" in refusal()
    index = source / "model.ckpt-7.index"
    index.write_bytes(index.read_bytes()[:-20])
    assert "cannot be read as a TensorFlow checkpoint" in refusal()
    assert run("export", "--format=mesh_tensorflow", source, imported) == 2
    assert "export writes only --format=huggingface, and not mesh_tensorflow" in capsys.readouterr().err


OTHER_MODELS = {  # a line: what is said of it
    "encoder/SelfAttention.fold_scaling_into_initializer = False\n"
    "decoder/SelfAttention.fold_scaling_into_initializer = True": "False; models of these rules, t5, have True",
    "EncDecAttention.attention_func = 'hybrid'": "'hybrid'; models of these rules, t5, have none",
    "SelfAttention.attention_kwargs = {'extra_logit': 0.0}": "{'extra_logit': 0.0}; models of these rules, t5, have {}",
    "Unitransformer.sinusoid_positional_embedding = True": "True; models of these rules, t5, have False",
}


@pytest.mark.parametrize("line", OTHER_MODELS)
def test_what_changes_results_and_no_name_is_refused(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The configurations that were published write out the values which change nothing."""
    write_v2(tmp_path / "model.ckpt-7", as_mesh_tensorflow("t5"))
    usual = CONFIG.format(activation="'relu'")
    (tmp_path / "operative_config.gin").write_text(f"{usual}{line}\n")
    assert run("import", "--format=mesh_tensorflow", tmp_path, tmp_path / "imported") == 2
    told = f"has {line.partition(' =')[0]} = {OTHER_MODELS[line]}: meshtf has no such model"
    assert told in capsys.readouterr().err
    parameters = ("attention_kwargs = None", "attention_func = None", "fold_scaling_into_initializer = True")
    published = [f"{layer}.{p}\n" for layer in ("encoder/SelfAttention", "EncDecAttention") for p in parameters]
    published += ["Unitransformer.sinusoid_positional_embedding = False\n", "sublayer_rms_norm.epsilon = 1e-4\n"]
    (tmp_path / "operative_config.gin").write_text(usual + "".join(published))
    assert run("import", "--format=mesh_tensorflow", tmp_path, tmp_path / "imported") == 0
    assert "\nRmsNorm.epsilon = 0.0001\n" in (tmp_path / "imported" / "model.gin").read_text()


def test_gin_is_read_without_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text(CONFIG.format(activation="'relu'"))
    found = read_gin(tmp_path / "a.gin")
    assert found["d_ff"] == 12
    assert found["SelfAttention.num_heads"] == found["encoder/SelfAttention.num_heads"] == 2
    assert found["DenseReluDense.activation"] == "relu"
    assert "transformer.make_layer_stack.layers" not in found
