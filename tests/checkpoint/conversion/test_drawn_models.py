"""An import of an odd but legal configuration gives the logits of Transformers, or refuses and says why."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoint.conversion.drawn_models import verdict, write_folder
from tests.checkpoint.conversion.imported_models import MODELS, run
from tests.house.sharpest import sharpest

FOLDER = Path(__file__).parent
STORED = {case["name"]: case for case in json.loads((FOLDER / "drawn_models.json").read_text())}
PATTERN = r"has layer_pattern = '{}'; models of these rules, \w+, have '\w+ \w+'"
REFUSED = {
    "t5, null scale": r"has scale_decoder_outputs = null, .* write the value that the model was trained with",
    "t5, an embedding of the encoder": r"taken by no rule \(1\):\n +encoder\.embed_tokens\.weight \[20, 8\] float32",
    "gpt-2, not causal": r"has is_causal = False; models of these rules, gpt2, have True: meshtf has no such model",
    "bert, a decoder of its own": r"taken by no rule \(1\):\n +cls\.predictions\.decoder\.weight \[20, 8\] float32",
    "bert, one class": r"gives num_classes = 1, and meshtf has such a model for 2 or more.* one class means a "
    r"regression",
    "llama, not causal": r"has is_causal = False; models of these rules, llama, have True",
    "llama, a table for each kind of layer": r"has rope_parameters\.full_attention = .* which the rules llama\.toml "
    r"do not know: .* give --ignore_key=rope_parameters\.full_attention",
    "gpt-neox, heads of 14": r"rotates 3 of 14 elements of a head .* rotated in pairs, so there is no such model",
    "gpt-neox, head_dim": r"has head_dim = 4, which the rules gpt_neox\.toml do not know",
    "bloom, slow but exact": r"has slow_but_exact = True; models of these rules, bloom, have False",
    "gpt-neo, attention_layers counts": PATTERN.format("local global"),
    "switch, a router of float16": r"has router_dtype = 'float16'; models of these rules, switch_transformers, have",
}

SHARPEST = (
    "gemma 2, sffs",
    "gemma 2, null soft caps",
    "gemma 2, hidden_act says nothing",
    "gemma, gelu means the tanh form",
    "gpt-2, a head of its own",
    "gpt-neo, the pattern written out",
    "gpt-neox, heads of 14, a part rounded down",
    "llama 3, length at top",
    "llama, linear by type",
    "llama, null heads of keys",
    "llama, two tables",
    "t5 1.1, tied and not scaled",
    "t5, dense_act_fn counts",
)


@pytest.mark.parametrize("name", sharpest(STORED, [*REFUSED, *SHARPEST]))
def test_a_configuration_gives_its_logits_or_an_error(name: str, tmp_path: Path) -> None:
    found = verdict(STORED[name], tmp_path)
    if name in REFUSED:
        assert found.startswith("refused")
        assert re.search(REFUSED[name], found, re.DOTALL), found
    else:
        assert found == "equal"


def test_an_unknown_key_is_told_and_may_be_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(STORED["llama, swish"], tmp_path / "source")
    configuration = json.loads((tmp_path / "source" / "config.json").read_text())
    odd = configuration | {"rope_scaling": {"beta": [1] * 30}, "colour": "red", "_attn_implementation": "eager"}
    (tmp_path / "source" / "config.json").write_text(json.dumps(odd))
    assert run("import", tmp_path / "source", tmp_path / "imported") == 2
    told = capsys.readouterr().err
    assert "has rope_scaling.beta = [1, 1, 1, 1" in told
    assert "..., colour = 'red', which the rules llama.toml do not know: the model may compute something else" in told
    assert "give --ignore_key=rope_scaling.beta --ignore_key=colour" in told
    assert not (tmp_path / "imported").exists()
    ignored = ["--ignore_key=rope_parameters.beta", "--ignore_key=colour"]
    assert run("import", tmp_path / "source", tmp_path / "imported", *ignored) == 0
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    assert json.loads((tmp_path / "exported" / "config.json").read_text())["colour"] == "red"


def test_check_compares_with_transformers_or_says_that_it_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("import", MODELS / "llama", tmp_path / "imported", "--check")
    if all(importlib.util.find_spec(package) for package in ("torch", "transformers")):
        assert "checked:    logits of 24 tokens are those of Transformers to " in capsys.readouterr().out
    else:
        assert status == 2
        assert "pip install 'meshtf[test-transformers]'. Nothing was written." in capsys.readouterr().err
        assert not (tmp_path / "imported").exists()


def test_the_whole_file_counts_beside_an_index(tmp_path: Path) -> None:
    write_folder(STORED["llama, swish"], tmp_path / "source")
    shutil.copy(MODELS / "gemma" / "model.safetensors.index.json", tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_drawn_configurations_never_differ_in_silence(tmp_path: Path, seed: int) -> None:
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package}, of the extra test-transformers, is not installed")
    command = [sys.executable, FOLDER / "draw_configurations.py", f"--seed={seed}", "--count=500"]
    cases = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=1800).stdout)
    verdicts = {}
    for number, case in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        verdicts[case["name"]] = verdict(case, tmp_path / str(number))
    assert {name: found for name, found in verdicts.items() if found.startswith("differs")} == {}
    assert sum(found == "equal" for found in verdicts.values()) > 200
