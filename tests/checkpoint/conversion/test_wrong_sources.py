"""What cannot be imported or exported is named, and nothing is written."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from meshtf.checkpoint.conversion import imported_folder
from meshtf.checkpoint.conversion.family import packaged_families
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.train.configuration import OPERATIVE_CONFIG
from tests.checkpoint.conversion.imported_models import MODELS, run

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARD, THIRD = "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"
LN, WPE = "transformer.h.1.ln_1.bias", "transformer.wpe.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a stored model, to be spoilt."""

    def copy(name: str) -> Path:
        return shutil.copytree(MODELS / name, tmp_path / "source")

    return copy


def with_weights(folder: Path, change: Callable[[dict[str, np.ndarray]], None], file: str = WHOLE) -> None:
    weights = safetensors.numpy.load_file(folder / file)
    change(weights)
    safetensors.numpy.save_file(weights, folder / file)


def with_configuration(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def truncated(folder: Path) -> None:
    (folder / WHOLE).write_bytes((folder / WHOLE).read_bytes()[:-100])


def pickled(folder: Path) -> None:
    (folder / WHOLE).rename(folder / "pytorch_model.bin")


SPOILT: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "cut short": ("gpt2", truncated, "model.safetensors cannot be read as a safetensors file: .*copy it again"),
    "a shard is missing": ("gemma", lambda f: (f / SHARD).unlink(), f"lacks {SHARD}, one of the 3 files"),
    "a shard of another": (
        "gemma",
        lambda f: shutil.copy(f / SHARD, f / THIRD),
        f"index.json says that {THIRD} has .*, but it does not",
    ),
    "a tensor in two shards": (
        "gemma",
        lambda f: with_weights(f, lambda w: w.update({"model.norm.weight": np.ones(8, np.float32)}), SHARD),
        f"{SHARD} and .*{THIRD} both have model.norm.weight; remove the file that does not belong to the model",
    ),
    "an index of elsewhere": (
        "gemma",
        lambda f: (f / INDEX).write_text('{"weight_map": {"w": "../w.safetensors"}}'),
        "names '../w.safetensors', which is not a safetensors file in the same folder",
    ),
    "pickled": ("gpt2", pickled, "It has pytorch_model.bin, .* run its author's code.* safe_serialization=True"),
    "no configuration": ("gpt2", lambda f: (f / "config.json").unlink(), "config.json cannot be read: No such file"),
    "configuration is no JSON": ("gpt2", lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "unknown family": (
        "gpt2",
        lambda f: with_configuration(f, model_type="gtp2"),
        """no rules for models of type 'gtp2'; did you mean "gpt2".*--rules=FILE""",
    ),
    "another family": (
        "gpt2",
        lambda f: with_configuration(f, model_type="llama"),
        "lacks hidden_size, from which d_model comes: it belongs to another family",
    ),
    "null in place of a number": (
        "llama",
        lambda f: with_configuration(f, vocab_size=None),
        "lacks vocab_size, from which vocab_size comes, and has null in its place: .* choose one and write it there",
    ),
    "rotary scaling of no kind": (
        "llama",
        lambda f: with_configuration(f, rope_parameters=None, rope_scaling={"factor": 2.0}),
        "has rope_parameters.factor but not rope_parameters.rope_type",
    ),
    "turns of layers that are not there": (
        "gemma2",
        lambda f: with_configuration(f, layer_types=["chunked_attention"] * 4),
        "has a layer of kind 'chunked_attention'; models of these rules have 'sliding_attention' or 'full_attention'",
    ),
    "no table of rotary embeddings": (
        "llama",
        lambda f: with_configuration(f, rope_scaling="linear"),
        "has 'linear' where a table of rotary embeddings should be",
    ),
    "more layers than memory has room for": (
        "gpt_neo",
        lambda f: with_configuration(f, attention_types=[[["global", "local"], 10**12]]),
        "has attention_types of 2,000,000,000,000 layers; the file was probably edited",
    ),
    "kinds of no layers": (
        "gemma2",
        lambda f: with_configuration(f, layer_types=[], num_hidden_layers=0),
        "has no layers, by its num_hidden_layers; the file was probably edited",
    ),
    "kinds of fewer layers": (
        "gemma2",
        lambda f: with_configuration(f, layer_types=["full_attention"] * 3),
        "has 3 entries of layer_types for 4 layers; Transformers refuses this, too",
    ),
    "a window of no size": (
        "gemma2",
        lambda f: with_configuration(f, sliding_window=None),
        "has layers that see a window, and does not say how wide it is, in sliding_window",
    ),
    "more layers than any model": (
        "gemma2",
        lambda f: with_configuration(f, layer_types=None, num_hidden_layers=10**9),
        "has num_hidden_layers = 1,000,000,000, and no model has more than 100,000; the file was probably edited",
    ),
    "more layers of several kinds than any model": (
        "gemma2",
        lambda f: with_configuration(f, layer_types=None, num_hidden_layers=2000),
        "has 2,000 layers of several kinds, and no model has more than 1,000; the file was probably edited",
    ),
    "a part of a head that is no number": (
        "gpt_neox",
        lambda f: with_configuration(f, rope_parameters={"partial_rotary_factor": float("inf")}),
        "Rotary.fraction = inf.*Nothing was written",
    ),
    "a key of two words": (
        "gpt2",
        lambda f: with_configuration(f, **{"two words": 1}),
        "has two words = 1, which the rules",
    ),
    "another size": (
        "gpt2",
        lambda f: with_configuration(f, n_positions=15),
        rf"of another shape \(1\):\n    {WPE} is \[16, 8\], and must be \[15, 8\]",
    ),
    "no size": ("gpt2", lambda f: with_configuration(f, n_head=3), r"gives d_kv = 2.6.*which is not a size"),
    "no size in the world": ("gpt2", lambda f: with_configuration(f, n_embd=10**400), "from which d_kv comes"),
    "more layers than there are": (
        "gpt2",
        lambda f: with_configuration(f, n_layer=10**9),
        r"asks for 1,000,000,000 tensors transformer\.h\.\{layer\}.*the file was probably edited",
    ),
    "a variant": (
        "gpt2",
        lambda f: with_configuration(f, scale_attn_by_inverse_layer_idx=True),
        "has scale_attn_by_inverse_layer_idx = True; models of these rules, gpt2, have False",
    ),
    "an activation": (
        "gpt2",
        lambda f: with_configuration(f, activation_function="mish"),
        "has activation_function = 'mish', and these rules know relu, gelu",
    ),
    "an activation under its other name": (
        "llama",
        lambda f: with_configuration(f, hidden_act="mish"),
        "has hidden_act = 'mish', and these rules know relu, gelu",
    ),
    "a variant of rotary embeddings": (
        "llama",
        lambda f: with_configuration(f, rope_parameters={"rope_type": "axial"}),
        "has rope_parameters.rope_type = 'axial'; models of these rules, llama, have 'default' or 'linear'",
    ),
    "a part of each head rotated": (
        "llama",
        lambda f: with_configuration(f, partial_rotary_factor=0.5),
        "has rope_parameters.partial_rotary_factor = 0.5; models of these rules, llama, have 1.0",
    ),
    "attention to both sides": (
        "gemma",
        lambda f: with_configuration(f, use_bidirectional_attention=True),
        "has use_bidirectional_attention = True; models of these rules, gemma, have False",
    ),
    "what no model has": (
        "gpt_neox",
        lambda f: with_configuration(f, rope_scaling={"type": "linear", "partial_rotary_factor": 0.5}),
        "has rope_parameters.rope_type = 'linear'; models of these rules, gpt_neox, have 'default'",
    ),
    "another kind of classes": (
        "bert_classifier",
        lambda f: with_configuration(f, problem_type="multi_label_classification"),
        "has problem_type = 'multi_label_classification'; models of these rules, bert, have 'single_label",
    ),
    "a tensor under two names": (
        "gpt2",
        lambda f: with_weights(f, lambda w: w.update({WPE.removeprefix("transformer."): w[WPE]})),
        f"the weights have {WPE} twice, as (transformer.)?wpe.weight and as (transformer.)?wpe.weight",
    ),
    "a tensor is missing": ("gpt2", lambda f: with_weights(f, lambda w: w.pop(LN)), rf"missing \(1\):\n    {LN}"),
    "whole numbers": (
        "gpt2",
        lambda f: with_weights(f, lambda w: w.update({WPE: w[WPE].astype(np.int8)})),
        r"of another kind of numbers \(1\):\n    embedding/positions is int8 in the weights, and float32 in the model",
    ),
    "a tensor too many": (
        "gpt2",
        lambda f: with_weights(f, lambda w: w.update(adapter=np.zeros(3, np.float32))),
        r"taken by no rule \(1\):\n    adapter \[3\] float32\nNothing was written.*--nostrict",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_is_wrong_is_named(
    case: str, folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, spoil, message = SPOILT[case]
    source = folder(name)
    spoil(source)
    assert run("import", source, tmp_path / "imported") in (1, 2)
    error = capsys.readouterr().err
    assert re.search(message, error, re.DOTALL), error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"], "nothing is written"


def test_a_model_that_cannot_be_built_is_told_by_a_line_that_is_shown(
    folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (family,) = (path for path in packaged_families("huggingface") if path.stem == "gpt2")
    (tmp_path / "rules.toml").write_text(family.read_text().replace("Training.model", "Trainign.model"))
    assert run("import", folder("gpt2"), tmp_path / "imported", f"--rules={tmp_path / 'rules.toml'}") == 2
    error = capsys.readouterr().err
    assert "no model can be built from the gin file model.gin that the rules rules.toml make:" in error
    assert "model.gin:" in error
    assert "\n    Trainign.model = @TransformerLM()\nNothing was written." in error
    assert ".writing-" not in error
    assert not (tmp_path / "imported").exists()


def test_what_no_rule_takes_can_be_left_out(
    folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = folder("gpt2")
    with_weights(source, lambda w: w.update(adapter=np.zeros(3, np.float32)))
    assert run("import", source, tmp_path / "imported", "--nostrict") == 0
    assert "left out, taken by no rule (1):\n    adapter" in capsys.readouterr().out


def test_a_tensor_that_the_index_of_shards_lacks_counts(folder: Callable[[str], Path], tmp_path: Path) -> None:
    source = folder("gemma")
    embedding = safetensors.numpy.load_file(source / "model-00001-of-00003.safetensors")["model.embed_tokens.weight"]
    with_weights(source, lambda w: w.update({"lm_head.weight": embedding + 1}), THIRD)
    assert run("import", source, tmp_path / "imported") == 0
    saved = SavedCheckpoint.open(tmp_path / "imported" / "checkpoints" / "step_00000000")
    np.testing.assert_array_equal(saved.read("output/weights"), embedding + 1)


def test_an_export_needs_the_configuration_of_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("import", MODELS / "gpt2", tmp_path / "imported") == 0
    checkpoint = tmp_path / "imported" / "checkpoints" / "step_00000000"
    shutil.copytree(checkpoint, tmp_path / "alone" / "step_00000000")
    refusals = {
        (tmp_path / "alone",): "does not name its model of Transformers: .*Give --config",
        (tmp_path / "aloen",): "aloen is not the folder of a checkpoint",
        (tmp_path / "alone", f"--config={MODELS / 'llama'}"): r"missing \(\d+\):\n    .*output/weights",
        (tmp_path / "imported", f"--config={tmp_path / 'config.json'}"): "config.json cannot be read: No such file",
    }
    for (path, *flags), message in refusals.items():
        assert run("export", path, tmp_path / "exported", *flags) == 2
        error = capsys.readouterr().err
        assert re.search(message, error, re.DOTALL), error
        assert not (tmp_path / "exported").exists()
    assert run("export", tmp_path / "alone", tmp_path / "exported", f"--config={MODELS / 'gpt2'}") == 0
    assert run("export", tmp_path / "alone", tmp_path / "exported", f"--config={MODELS / 'gpt2'}") == 2
    assert "already exists" in capsys.readouterr().err


def test_an_export_knows_every_key_of_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("import", MODELS / "gpt2", tmp_path / "imported") == 0
    configuration = json.loads((MODELS / "gpt2" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**configuration, "colour": "red"}))
    flags = [tmp_path / "imported", tmp_path / "exported", f"--config={tmp_path / 'config.json'}"]
    assert run("export", *flags) == 2
    assert "has colour = 'red', which the rules gpt2.toml do not know" in capsys.readouterr().err
    assert not (tmp_path / "exported").exists()
    assert run("export", *flags, "--ignore_key=colour") == 0
    assert json.loads((tmp_path / "exported" / "config.json").read_text())["colour"] == "red"


def test_an_export_of_a_run_that_began_with_itself_needs_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("import", MODELS / "gpt2", tmp_path / "imported") == 0
    shutil.copytree(tmp_path / "imported" / "checkpoints", tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / OPERATIVE_CONFIG).write_text(f"Training.initial_checkpoint = '{tmp_path / 'run'}'\n")
    assert run("export", tmp_path / "run", tmp_path / "exported") == 2
    assert re.search("run does not name its model .*Give --config", capsys.readouterr().err, re.DOTALL)


WRONG_RULES = {
    "tensor = 1": "it has 'tensor'; did you mean \"tensors\"",
    "[settings]\nn = { keys = 1 }": "settings.n must be a key, a list, or a table of .*; keys is not",
    '[axes]\na = "b"': "there is no setting 'b'",
    '[[tensors]]\nrules = "a b"': "this is not a rule:\n    a b\nA rule is",
    '[[tensors]]\nrules = "a [x y] = b [x]"': "a and b: y is on one side only",
    '[[tensors]]\nrules = "a [x] = b [(x]"': r"a bracket is not closed:\n    \(x",
    '[[tensors]]\nrules = "a [x ) y] = b"': r"'\)' is not allowed here:\n    x \) y\n      \^",
    '[[tensors]]\nrules = "a [x x] = b"': "an axis appears twice",
    '[[tensors]]\nrules = "a [(x + y + z)] = b"': r"'\+' is not allowed here:\n    \(x \+ y \+ z\)\n           \^",
    'parts = ["rotry"]': "there is no part 'rotry'; did you mean \"rotary\"",
    '[layers]\nkey = "layer_kinds"': r"\[layers\] must have `key`, and `kinds`",
    '[labels]\na = ["b"]\n[[tensors]]\nrules = "w{a} [] = w{a:her} []"': "w{a:her}: there are no labels 'a:her'",
    '[[tensors]]\nrules = "a{x} [x] = b [x]"': r"a\{x\}: x is in its name and in its shape",
    '[[tensors]]\nrules = "a{x [y] = b"': "'{' in 'a{x' is not part of a placeholder for a number",
    '[[tensors]]\nrules = "a [x] = b"': "a: there is no axis 'x'",
    "[[tensors]": ".*line 2",
}


@pytest.mark.parametrize("text", WRONG_RULES)
def test_rules_that_cannot_be_are_told_of(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "own.toml"
    tensors = "" if "tensors" in text else '\n[[tensors]]\nrules = ""'
    rules.write_text(f'format = "huggingface"\n{text}{tensors}\n')
    assert run("import", MODELS / "gpt2", tmp_path / "imported", f"--rules={rules}") == 2
    error = capsys.readouterr().err
    assert re.search(f"the rules {rules} cannot be read: {WRONG_RULES[text]}", error, re.DOTALL), error


def test_a_full_disk_is_a_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(imported_folder, "copy_rules", full)
    assert run("import", MODELS / "gpt2", tmp_path / "imported") == 4
    assert f"{tmp_path / 'imported' / 'original'} cannot be written: No space left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_own_rules_that_make_another_model_are_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (path for path in packaged_families("huggingface") if path.stem == "gpt2")
    rules = tmp_path / "own.toml"
    rules.write_text(path.read_text().replace("decoder/final/norm/scale", "decoder/final/scale"))
    assert run("import", MODELS / "gpt2", tmp_path / "imported", f"--rules={rules}") == 2
    error = capsys.readouterr().err
    assert "made by no rule (1):\n    decoder/final/norm/scale" in error
    assert "not in the model (1):\n    decoder/final/scale" in error
    assert not (tmp_path / "imported").exists()
