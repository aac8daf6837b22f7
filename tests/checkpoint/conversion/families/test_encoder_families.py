"""Encoders, encoder-decoders and some decoders are those of Transformers, and go back as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import meshtf as mtf
from meshtf.bin import eval as evaluation
from meshtf.checkpoint.conversion.family import find_family
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read, read_configuration
from meshtf.train.decoding import Prompts, Sampling, Stops, generate
from tests.checkpoint.conversion.drawn_models import verdict, write_folder
from tests.checkpoint.conversion.families.encoder_configurations import BASES
from tests.checkpoint.conversion.imported_models import MODELS, interpreted, run

FOLDER = Path(__file__).parent
STORED = {case["name"]: case for case in json.loads((FOLDER / "drawn_encoders.json").read_text())}
LAYOUT = "batch:rows;d_kv:cols;d_ff:cols;vocab:cols"
REFUSED = {
    "opt, norms without scales": r"has layer_norm_elementwise_affine = False; models of these rules, opt, have True",
    "bart, untied": r"has tie_word_embeddings = False; models of these rules, bart, have True: "
    r"meshtf has no such model",
    "electra, which tells replaced tokens": r"has architectures\.0 = 'ElectraForPreTraining', and these rules know "
    r"ElectraForMaskedLM, ElectraForSequenceClassification: meshtf has no such model",
}


SHARPEST = (
    "gpt-oss",
    "deepseek-v2, groups",
    "umt5",
    "marian, two vocabularies",
    "bart, a head of its own",
    "modernbert, for classes, means",
    "opt, norms behind, a narrow table",
    "electra",
    "distilbert, for classes",
    "xlm-roberta, types of tokens",
)
"""One of each family."""
SPLIT = ("umt5", "opt, norms behind, a narrow table")
"""Which the short run has on four cores: an encoder with a decoder, and a decoder."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_there_is_not_is_refused(name: str, tmp_path: Path) -> None:
    found = verdict(STORED[name], tmp_path)
    assert re.match(f"refused: .*{REFUSED[name]}", found), found


@pytest.mark.parametrize(
    ("name", "is_split"),
    [
        *((name, name in SPLIT) for name in SHARPEST),
        *(pytest.param(n, True, marks=pytest.mark.long) for n in STORED if n not in (*REFUSED, *SPLIT)),
    ],
)
def test_models_are_those_of_transformers_and_back_again(name: str, is_split: bool, tmp_path: Path) -> None:
    case = STORED[name]
    assert verdict(case, tmp_path, *(("rows:2;cols:2", LAYOUT) if is_split else ())) == "equal"
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    before, again = (tensors_of(tmp_path / folder) for folder in ("source", "exported"))
    copies = [tensor for tensor in before if tensor not in again]
    assert all(any(before[copy].tobytes() == own.tobytes() for own in again.values()) for copy in copies)
    assert {n: x.tobytes() for n, x in again.items()} == {n: before[n].tobytes() for n in again}
    if "greedy" in case:
        np.testing.assert_array_equal(continued(tmp_path / "imported", case), case["greedy"])


def test_a_table_that_ends_before_the_first_position_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = STORED["roberta"]
    write_folder({**case, "config": {**case["config"], "pad_token_id": 15}}, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 2
    told = capsys.readouterr().err
    assert "gives max_length = 0, from max_position_embeddings - pad_token_id - 1, and meshtf has such a model" in told


# What stands in the files of published models beside sizes, and changes nothing or is what these families are.
_OLD = {"_num_labels": 3, "add_bias_logits": False, "add_final_layer_norm": False, "classif_dropout": 0.0}
_OLD |= {"classifier_dropout": 0.0, "normalize_before": False, "num_hidden_layers": 6, "gradient_checkpointing": False}
PUBLISHED = {
    "roberta": {"output_past": True, "position_embedding_type": "absolute", "finetuning_task": "a"},
    "opt": {"_remove_final_layer_norm": False, "activation_dropout": 0.0, "layerdrop": 0.0, "prefix": "</s>"},
    "bart": {
        **_OLD,
        "force_bos_token_to_be_generated": True,
        "forced_bos_token_id": 0,
        "no_repeat_ngram_size": 3,
        "normalize_embedding": True,
        "extra_pos_embeddings": 2,
    },
    "marian": {
        **_OLD,
        "bad_words_ids": [[58100]],
        "decoder_vocab_size": 58101,
        "normalize_embedding": False,
        "static_position_embeddings": True,
    },
    "distilbert": {"tie_weights_": True, "sinusoidal_pos_embds": False, "qa_dropout": 0.1, "output_past": True},
    "electra": {"summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first"},
    "umt5": {"scalable_attention": True, "output_past": True, "dense_act_fn": "gelu_new", "is_gated_act": True},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_keys_of_published_configurations_are_known(name: str) -> None:
    configuration = {**BASES[name], **PUBLISHED[name]}
    family = find_family("huggingface", name)
    family.check_keys(configuration, (), "config.json")
    assert family.model(configuration, {}, "config.json").settings["padding_id" if name != "opt" else "start_id"] >= 0


CLASSIFIERS = [name for name in STORED if "classes" in name]


@pytest.mark.parametrize("name", [*CLASSIFIERS, "bert_classifier", "marian, two vocabularies"])
def test_whatever_the_gin_file_says_is_read(name: str, tmp_path: Path) -> None:
    """As a training asks, of a program that computes losses."""
    source = MODELS / name
    if name in STORED:
        write_folder(STORED[name], source := tmp_path / "source")
    assert run("import", source, tmp_path / "imported") == 0
    read_configuration([ImportedFolder(tmp_path / "imported").model_gin], [])
    try:
        model = gin.query_parameter("Training.model").scoped_configurable_fn()
        graph = mtf.Graph()
        mesh, shape = mtf.Mesh(graph), [("batch", 2), ("length", 4)]
        with graph:
            ids = mtf.zeros(mesh, shape, tf.int32)
            model.metrics({"inputs": ids, "targets": ids, "labels": mtf.zeros(mesh, shape[:1], tf.int32)}, True)
        with pytest.raises(ConfigurationError, match=r"nothing reads this binding:\n  Training\.model"):  # none is made
            check_every_binding_is_read()
    finally:
        gin.clear_config()


def test_pairs_of_texts_are_as_robertas_tokenizer_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ends between them, and all tokens of the one type that the model has."""
    pytest.importorskip("tokenizers")
    write_folder(STORED["roberta, for classes"], tmp_path / "source")
    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(4, 20))]
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "<unk>"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
        | {"trim_offsets": True, "add_prefix_space": False},
        "added_tokens": [],
    }
    (tmp_path / "source" / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    (tmp_path / "imported" / "held_out.csv").write_text("text,pair,label\nw4 w5,w6,a\nw7,w8 w9,c\n")
    monkeypatch.chdir(tmp_path)
    gin.clear_config()
    pairs = ["--gin_param=LabelledTextTask.has_pairs=True", "--gin_param=LabelledFiles.pair='pair'"]
    assert evaluation.main(["meshtf-eval", "--model_dir=imported", *pairs]) == 0
    task = gin.query_parameter("Training.task").scoped_configurable_fn()
    (batch,) = task.evaluation_batches(2)
    gin.clear_config()
    assert "(on 2 held-out examples)" in capsys.readouterr().out
    np.testing.assert_array_equal(batch["inputs"][:, :9], [[0, 4, 5, 2, 2, 6, 2, 1, 1], [0, 7, 2, 2, 8, 9, 2, 1, 1]])
    assert not batch["inputs_token_types"].any()


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / "model.safetensors")


def continued(folder: Path, case: Mapping[str, Any]) -> np.ndarray:
    """The tokens that greedy decoding adds to what Transformers was given, less the first, which the model knows."""
    inputs, targets = np.array(case["input_ids"], np.int32), case.get("decoder_input_ids")
    given = np.array(targets, np.int32)[:, 1:2] if targets else inputs[:, 1:4]
    count, total = given.shape[1], given.shape[1] + len(case["greedy"][0])
    ids = np.pad(given, [(0, 0), (0, total - count)])

    def program(model: Any, features: Mapping[str, mtf.Tensor]) -> mtf.Tensor:
        ids = features["ids"]
        lengths = mtf.fill(ids.mesh, count, [ids.shape[0]], tf.int32)
        prompts = Prompts(ids, lengths, mtf.fill(ids.mesh, total, [ids.shape[0]], tf.int32))
        return generate(model.incremental_decoder(features), prompts, Sampling(), Stops()).ids

    features = {"ids": ids, "inputs": inputs} if targets else {"ids": ids}
    return interpreted(folder, features, program)[:, count:]
