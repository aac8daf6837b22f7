"""Weights of Hugging Face's Transformers give the same logits here, on four cores; drawn models have them on one."""

from __future__ import annotations

import json
import pprint
import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from meshtf.train.configuration import OPERATIVE_CONFIG
from tests.checkpoint.conversion.imported_models import MODELS, expected, interpreted, run
from tests.house.sharpest import sharpest

NAMES = sorted(path.name for path in MODELS.iterdir())
LAYOUT = "batch:rows;heads:cols;d_ff:cols;vocab:cols"
OTHER_LAYOUTS = {
    "switch_transformers": "experts:rows;heads:cols;vocab:cols",  # whose groups are of the whole batch
    "bloom": "batch:rows;d_ff:cols;vocab:cols",  # which has three heads
}

SHARPEST = ("switch_transformers", "t5_1_1", "gemma2", "gpt_neo", "gpt_neox", "bert_classifier", "llama_3_1", "bloom")
"""Experts, pairs, soft caps, windows, parts of heads rotated, classes, stretched angles, and biases by distance."""


def features(known: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What Transformers was fed, as meshtf's models want it: they see the ids before each target themselves."""
    inputs, decoder_ids = known["input_ids"], known.get("decoder_input_ids")
    if "token_type_ids" in known:
        return {"inputs": inputs, "inputs_token_types": known["token_type_ids"]}
    if decoder_ids is None:
        return {"targets": after(inputs)}
    return {"inputs": inputs, "targets": after(decoder_ids)}


def after(ids: np.ndarray) -> np.ndarray:
    """Without the first of each row, which is the start id; what comes last has no influence."""
    return np.concatenate([ids[:, 1:], np.zeros_like(ids[:, :1])], axis=1)


@pytest.mark.plain_cpu
@pytest.mark.parametrize("name", sharpest(NAMES, SHARPEST))
def test_logits_are_those_of_transformers_and_weights_go_back(name: str, tmp_path: Path) -> None:
    """What is exported again is the same bit for bit."""
    known, layout = expected(name), OTHER_LAYOUTS.get(name, LAYOUT)
    assert run("import", MODELS / name, tmp_path / "imported") == 0
    size = known["logits"].shape[-1]
    logits = interpreted(
        tmp_path / "imported", features(known), lambda model, x: model.logits(x, False), "rows:2;cols:2", layout
    )
    counts = counted(known)
    np.testing.assert_allclose(logits[..., :size][counts], known["logits"][counts], rtol=1e-5, atol=1e-5)
    check_export(MODELS / name, tmp_path)


def counted(known: Mapping[str, np.ndarray]) -> np.ndarray | slice:
    """Of a model that fills in masks: padding is given logits, which mean nothing."""
    is_masked_lm = "token_type_ids" in known and known["logits"].ndim == 3
    return known["attention_mask"] != 0 if is_masked_lm else slice(None)


def test_words_behind_masks_are_those_of_the_greatest_logits(tmp_path: Path) -> None:
    known = expected("bert")
    assert run("import", MODELS / "bert", tmp_path / "imported") == 0
    ids = interpreted(tmp_path / "imported", features(known), lambda model, x: model.predict(x)["ids"])
    np.testing.assert_array_equal(ids[counted(known)], known["logits"][counted(known)].argmax(-1))


def check_export(source: Path, folder: Path) -> None:
    assert run("export", folder / "imported", folder / "exported") == 0
    before, again = weights(source), weights(folder / "exported")
    assert before.keys() == again.keys()
    for tensor, value in before.items():
        assert (value.dtype, value.shape) == (again[tensor].dtype, again[tensor].shape)
        assert value.tobytes() == again[tensor].tobytes(), tensor
    old, new = (json.loads((place / "config.json").read_text()) for place in (source, folder / "exported"))
    assert old == new


def test_tensors_keep_their_own_dtypes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As T5 in float16, whose `wo` stay float32, and a file with a few weights of float64."""
    source = shutil.copytree(MODELS / "t5", tmp_path / "source")
    dtypes = {name: np.float32 if ".wo." in name else np.float16 for name in weights(source)}
    dtypes["shared.weight"] = np.float64
    mixed = {name: value.astype(dtypes[name]) for name, value in weights(source).items()}
    safetensors.numpy.save_file(mixed, source / "model.safetensors")
    (source / "chat_template.jinja").write_text("{{ messages }}")
    assert run("import", source, tmp_path / "imported") == 0
    assert "rounded:    numbers of float64 to float32" in capsys.readouterr().out
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    again = weights(tmp_path / "exported")
    assert {name: value.tobytes() for name, value in again.items()} == {n: v.tobytes() for n, v in mixed.items()}
    assert (tmp_path / "exported" / "chat_template.jinja").read_text() == "{{ messages }}"
    assert run("export", tmp_path / "imported", tmp_path / "halves", "--dtype=float16") == 0
    assert {value.dtype for value in weights(tmp_path / "halves").values()} == {np.dtype(np.float16)}


def test_an_export_has_the_files_that_were_beside_the_weights(tmp_path: Path) -> None:
    """Tokenizers of several families, and what scales images."""
    names = ["sentencepiece.bpe.model", "source.spm", "target.spm", "target_vocab.json", "vocab.json"]
    names += ["tekken.json", "preprocessor_config.json"]
    source = shutil.copytree(MODELS / "t5", tmp_path / "source")
    for name in names:
        (source / name).write_text(f'"{name}"')
    assert run("import", source, tmp_path / "imported") == 0
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    for name in names:
        assert (tmp_path / "exported" / name).read_text() == f'"{name}"'


def test_old_names_of_tensors_are_those_of_today(tmp_path: Path) -> None:
    """As in the files of BERT that are given out: with the pooler, which says nothing of masked tokens."""
    today = weights(MODELS / "bert")
    endings = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
    old = {"bert.pooler.dense.weight": np.ones([8, 8], np.float32), "bert.pooler.dense.bias": np.ones([8], np.float32)}
    for name, value in today.items():
        ending = next((ending for ending in endings if name.endswith(ending)), "")
        old[name.removesuffix(ending) + endings.get(ending, "")] = value
    shutil.copytree(MODELS / "bert", tmp_path / "source")
    safetensors.numpy.save_file(old, tmp_path / "source" / "model.safetensors")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    again = weights(tmp_path / "exported")
    assert {name: value.tobytes() for name, value in again.items()} == {n: v.tobytes() for n, v in today.items()}


SAME_MODELS: dict[str, tuple[dict[str, str], dict[str, int]]] = {
    "bloom": ({"hidden_size": "n_embed"}, {}),
    "bloom, other names": ({"hidden_size": "n_embed", "n_head": "num_attention_heads"}, {}),
    "llama, which has no window": ({}, {"sliding_window": 3}),
    "gemma": ({}, {"hidden_act": "gelu", "hidden_activation": "relu"}),  # as in the first releases
    "gpt2": (
        {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "bos_token_id": "_commit_hash"},
        {"bos_token_id": 1},
    ),
}


@pytest.mark.parametrize("case", SAME_MODELS)
def test_configurations_of_one_model_give_one_gin_file(case: str, tmp_path: Path) -> None:
    name, (renamed, added) = case.split(",")[0], SAME_MODELS[case]
    shutil.copytree(MODELS / name, tmp_path / name)
    configuration = json.loads((MODELS / name / "config.json").read_text())
    changed = {renamed.get(key, key): value for key, value in configuration.items()} | added
    (tmp_path / name / "config.json").write_text(json.dumps(changed))
    for source, output in ((MODELS / name, "before"), (tmp_path / name, "after")):
        assert run("import", source, tmp_path / output) == 0
    before, after = ((tmp_path / output / "model.gin").read_text() for output in ("before", "after"))
    assert before == after


@pytest.mark.parametrize("name", ["plain", "a\\b", "a'b\"c", f"two  spaces {'of many letters ' * 8}end"])
@pytest.mark.parametrize("begun", ["Training.initial_checkpoint", "first/InitialCheckpoint.path"])
def test_an_export_finds_the_folder_of_any_name_that_a_run_began_with(name: str, begun: str, tmp_path: Path) -> None:
    imported = tmp_path / name / "imported"
    assert run("import", MODELS / "gpt2", imported) == 0
    shutil.copytree(imported / "checkpoints", tmp_path / "run" / "checkpoints")
    value = pprint.pformat(str(imported), width=76)  # so gin writes it, in parts in brackets where it is long
    lines = ["Training.initial_checkpoint = @first/InitialCheckpoint()"] * begun.startswith("first")
    lines += [f"{begun} = \\", textwrap.indent(value, "    ")]
    (tmp_path / "run" / OPERATIVE_CONFIG).write_text("\n".join(lines))
    assert run("export", tmp_path / "run", tmp_path / "exported") == 0


def test_a_folder_of_any_name_stays_a_comment(tmp_path: Path) -> None:
    source = shutil.copytree(MODELS / "gpt2", tmp_path / "gpt2\nimport os #")
    assert run("import", source, tmp_path / "imported") == 0
    title, *lines = (tmp_path / "imported" / "model.gin").read_text().splitlines()
    assert title == r"# The model of 'gpt2\nimport os #', imported by the rules 'gpt2.toml'."
    assert "import os #" not in lines


def weights(folder: Path) -> dict[str, np.ndarray]:
    """Of all files of a model."""
    files = [safetensors.numpy.load_file(path) for path in sorted(folder.glob("*.safetensors"))]
    return {name: value for file in files for name, value in file.items()}
