"""BERT as Google's own program saves it: weights of stored models of Transformers, under its names, by TensorFlow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from tests.checkpoint.conversion.imported_models import MODELS, expected, interpreted, run
from tests.checkpoint.conversion.test_importing import counted, features

FORMAT = "--format=google_bert"
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 20,
}
NAMES = {
    r"\.LayerNorm\.weight$": ".LayerNorm.gamma",
    r"\.LayerNorm\.bias$": ".LayerNorm.beta",
    r"_embeddings\.weight$": "_embeddings",
    r"^classifier\.weight$": "output_weights",
    r"^classifier\.bias$": "output_bias",
    r"^cls\.predictions\.bias$": "cls.predictions.output_bias",
    r"\.weight$": ".kernel",
    r"\.layer\.": ".layer_",
    r"\.": "/",
}


def as_google(name: str) -> dict[str, np.ndarray]:
    """Kernels transposed; what predicts the next sentence, and of masked words the pooler, besides."""
    tensors = {}
    for key, value in safetensors.numpy.load_file(MODELS / name / "model.safetensors").items():
        own = key
        for pattern, replacement in NAMES.items():
            own = re.sub(pattern, replacement, own)
        tensors[own] = value.T if own.endswith("/kernel") else value
    others = {"bert/pooler/dense/kernel": [8, 8], "bert/pooler/dense/bias": [8]}
    if name == "bert":
        others |= {"cls/seq_relationship/output_weights": [2, 8], "cls/seq_relationship/output_bias": [2]}
    return {**{own: np.ones(shape, np.float32) for own, shape in others.items()}, **tensors}


def write(folder: Path, tensors: dict[str, np.ndarray], name: str = "bert_model.ckpt") -> Path:
    """By TensorFlow's Saver, with the configuration and the words beside."""
    folder.mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(own, initializer=value) for own, value in tensors.items()]
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(session, str(folder / name))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + "\n".join("abcdefghijklmno") + "\n")
    return folder


@pytest.mark.parametrize("name", ["bert", "bert_classifier"])
def test_logits_and_the_export_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    source, imported, exported = (
        write(tmp_path / "source", as_google(name)),
        tmp_path / "imported",
        tmp_path / "exported",
    )
    assert run("import", FORMAT, source, imported) == 0
    known = expected(name)
    logits = interpreted(imported, features(known), lambda model, x: model.logits(x, False))
    of_words = counted(known)
    size = known["logits"].shape[-1]
    np.testing.assert_allclose(logits[..., :size][of_words], known["logits"][of_words], rtol=1e-5, atol=1e-5)
    assert run("export", imported, exported) == 0
    before, again = (safetensors.numpy.load_file(f / "model.safetensors") for f in (MODELS / name, exported))
    assert {key: value.tobytes() for key, value in before.items()} == {k: v.tobytes() for k, v in again.items()}
    old, new = (json.loads((folder / "config.json").read_text()) for folder in (MODELS / name, exported))
    assert {key: old[key] for key in CONFIG} == {key: new[key] for key in CONFIG}
    assert (old["architectures"], old["model_type"]) == (new["architectures"], new["model_type"])
    assert len(old.get("id2label", ())) == len(new.get("id2label", ()))
    assert (exported / "vocab.txt").is_file()


def test_moments_of_a_training_go_with_their_variables(tmp_path: Path) -> None:
    tensors, generator = as_google("bert"), np.random.default_rng(0)
    slots = {
        f"{name}/{slot}": generator.random(value.shape, np.float32)
        for name, value in tensors.items()
        for slot in ("adam_m", "adam_v")
    }
    source = write(tmp_path / "source", {**tensors, **slots, "global_step": np.array(9, np.int64)}, "model.ckpt-9")
    assert run("import", FORMAT, "--optimizer_state", source, tmp_path / "imported") == 0
    saved = SavedCheckpoint.open(tmp_path / "imported" / "checkpoints" / "step_00000000")
    there = "bert/encoder/layer_1/attention/output/dense/kernel"
    for slot in ("adam_m", "adam_v"):
        found = saved.read(f"encoder/layer_001/self_attention/o/{slot}").numpy()
        np.testing.assert_array_equal(found, slots[f"{there}/{slot}"].reshape(2, 4, 8))
    assert int(saved.read("adam/step")) == 9


def test_what_is_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write(tmp_path / "source", as_google("bert"))

    def refused(message: str) -> None:
        assert run("import", FORMAT, source, tmp_path / "imported") in (1, 2)
        error = capsys.readouterr().err
        assert re.search(message, error, re.DOTALL), error
        assert not (tmp_path / "imported").exists()

    config = source / "bert_config.json"
    config.write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    refused(r"missing \(16\):\n    bert/encoder/layer_2/attention/self/query/kernel")
    config.write_text(json.dumps({**CONFIG, "vocab_size": 21}))
    refused(r"word_embeddings is \[20, 8\], and must be \[21, 8\]")
    config.write_text(json.dumps({**CONFIG, "hidden_act": "mish"}))
    refused("has hidden_act = 'mish', and these rules know gelu, relu, tanh")
    config.unlink()
    refused("bert_config.json cannot be read: No such file")
    data = next(source.glob("*.data-*"))
    config.write_text(json.dumps(CONFIG))
    data.write_bytes(data.read_bytes()[:100])
    refused("source/bert_model.ckpt")
