"""meshtf-decode, on the folder of a run of a small language model."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

import meshtf as mtf
from meshtf.bin import decode
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf_programs.exit_status import ExitStatus
from tests.bin.together import run_together
from tests.fresh_process import run_fresh
from tests.train.decoding.small_run import LENGTH, write_small_run

TERMS = 4 * (3 * 16 + 4 * (16 + 8 + LENGTH) + 64 + 8 * FUNCTION_TERMS) + 300
"""Roundings of a small model of one layer, and of the logits of as many tokens as there are bytes."""

PEAK_MEMORY = re.compile(r"peak memory:   3\.0 GiB on a core by its own count, [\d.]+ [KM]iB by the plan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    write_small_run(path)
    return path


def status_of(*arguments: str) -> int:
    return decode.main(["meshtf-decode", *arguments])


def test_prompts_from_standard_input_in_another_process(folder: Path) -> None:
    command = ["-m", "meshtf.bin.decode", f"--model_dir={folder}", "--format=jsonl"]
    options = ["--method=sample", "--top_p=0.9", "--max_new_tokens=4", "--batch_size=2", "--stop=e", "--seed=5"]
    options += ["--logprobs=3", "--presence_penalty=0.5", "--no_repeat_ngram_size=2", "--min_new_tokens=1"]
    done = run_fresh([*command, *options], stdin="def f(\n\nimpörté")
    assert done.status == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["prompt"] for result in results] == ["def f(", "", "impörté"]
    for result in results:
        assert 1 <= result["num_tokens"] == len(result["ids"]) <= 4
        assert result["rank"] == 1
        assert result["log_likelihood"] < 0
        assert [token["id"] for token in result["tokens"]] == result["ids"]
        assert all(len(token["likeliest"]) == 3 for token in result["tokens"])
    assert "decoding (sample) 3 texts with step 3 of " in done.stderr
    assert "=== " not in done.stdout


def test_beams_to_a_file_on_any_mesh(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--prompt=ab", "--prompt=c", "--method=beam", "--beam_size=2", "--max_new_tokens=3")
    assert status_of(f"--model_dir={folder}", *options) == ExitStatus.DONE
    printed = capsys.readouterr().out
    assert printed.startswith("=== prompt 1, rank 1, score -")
    assert "\nab" in printed
    other = ("--mesh_shape=rows:2;cols:2", "--layout=batch:rows;vocab:cols", f"--output={tmp_path / 'beams.txt'}")
    assert status_of(f"--model_dir={folder}", *options, *other) == ExitStatus.DONE
    assert (tmp_path / "beams.txt").read_text() == printed
    assert capsys.readouterr().out == ""


def test_a_draft_changes_no_text(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller model drafts, on a mesh that splits both, and whose cores count their memory."""
    (tmp_path / "draft").mkdir()
    write_small_run(tmp_path / "draft", "d_model = 8", "FeedForward.d_ff = 8")
    options = (f"--model_dir={folder}", "--prompt=ab", "--prompt=", "--stop=e", "--max_new_tokens=8")
    assert status_of(*options) == ExitStatus.DONE
    expected = capsys.readouterr().out
    monkeypatch.setattr(mtf.SpmdMeshImpl, "peak_bytes", 3 << 30)
    draft = (f"--draft={tmp_path / 'draft'}", "--draft_tokens=2", "--mesh_shape=rows:2", "--layout=heads:rows")
    assert status_of(*options, *draft) == ExitStatus.DONE
    captured = capsys.readouterr()
    assert captured.out == expected
    assert f"drafting 2 tokens at a time with step 3 of {tmp_path / 'draft'}" in captured.err
    assert re.search(r"\d\.\d\d tokens for each step of the model, which accepted \d+ of \d+ drafted", captured.err)
    assert PEAK_MEMORY.fullmatch(captured.err.splitlines()[-1])


def test_two_processes_write_what_one_writes(folder: Path, tmp_path: Path) -> None:
    """Process 0 does, once; the other says nothing."""
    mesh = ["--mesh_shape=rows:2", "--layout=heads:rows;d_ff:rows;vocab:rows"]
    command = ["-m", "meshtf.bin.decode", f"--model_dir={folder}", *mesh, "--prompt=ab", "--prompt=c"]
    sampled = [*command, "--method=sample", "--max_new_tokens=4", "--seed=5", "--format=jsonl"]
    alone = run_fresh(sampled, tmp_path)
    leader, other = run_together(2, sampled, tmp_path)
    assert (alone.status, leader.status, other.status) == (0, 0, 0), leader.stderr + other.stderr
    assert [json.loads(line)["ids"] for line in leader.stdout.splitlines() if line.startswith("{")] == [
        json.loads(line)["ids"] for line in alone.stdout.splitlines()
    ]
    assert "decoding (sample) 2 texts with step 3 of " in leader.stderr
    assert other.stdout == ""
    assert "decoding" not in other.stderr
    assert "tokens in" not in other.stderr


def test_scores(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On cores that count their memory."""
    monkeypatch.setattr(mtf.SpmdMeshImpl, "peak_bytes", 3 << 30)
    (tmp_path / "lines").write_text("abc\nde\n")
    arguments = (f"--model_dir={folder}", "--score", f"--prompt_file={tmp_path / 'lines'}", "--format=jsonl")
    assert status_of(*arguments) == ExitStatus.DONE
    captured = capsys.readouterr()
    results = [json.loads(line) for line in captured.out.splitlines()]
    assert [(r["text"], r["num_tokens"], r["num_bytes"]) for r in results] == [("abc", 3, 3), ("de", 2, 2)]
    assert f"together: log-likelihood {sum(r['log_likelihood'] for r in results):.4f}, perplexity" in captured.err
    assert PEAK_MEMORY.fullmatch(captured.err.splitlines()[-1])


def test_scoring_goes_on_where_it_was_broken_off(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind the last whole line; a line that was being written is written anew."""
    lines, scores = tmp_path / "lines.gz", tmp_path / "scores.jsonl"
    lines.write_bytes(gzip.compress("abc\nde\n\nimpörté\nx\n".encode()))
    command = (f"--model_dir={folder}", "--score", f"--prompt_file={lines}", "--format=jsonl", f"--output={scores}")
    options = ("--batch_size=2", "--resume")
    assert status_of(*command, *options) == ExitStatus.DONE
    whole, said = scores.read_bytes(), capsys.readouterr().err
    assert [json.loads(line)["text"] for line in whole.splitlines()] == ["abc", "de", "", "impörté", "x"]
    scores.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]) + b'{"text": "imp')
    assert status_of(*command, *options) == ExitStatus.DONE
    assert "scoring 5 texts, of which 3 are done with step 3 of " in (again := capsys.readouterr().err)
    assert [line.rpartition(" (")[2] for line in (again, said)] == ["15 tokens, 15 bytes)\n"] * 2
    assert scores.read_bytes().splitlines()[:3] == whole.splitlines()[:3]
    for one, other in zip(scores.read_text().splitlines(), whole.splitlines(), strict=True):
        one, other = json.loads(one), json.loads(other)
        assert (one["text"], one["num_tokens"]) == (other["text"], other["num_tokens"])
        assert_close(one["log_likelihood"], other["log_likelihood"], terms=TERMS, dtype="float32")
    for content, message in ((b"{}\n", "line 1 of .* is not a score in JSON"), (whole[::-1], "is not a score in JSON")):
        scores.write_bytes(content)
        assert status_of(*command, *options) == ExitStatus.BAD_FILE
        assert re.search(message, capsys.readouterr().err)
    scores.write_bytes(of_step_2 := whole.replace(b'"step": 3', b'"step": 2'))
    assert status_of(*command, *options) == ExitStatus.BAD_FILE
    assert f"the scores in {scores} are from step 2, but this model is from step 3" in capsys.readouterr().err
    assert scores.read_bytes() == of_step_2 != whole
    scores.write_bytes(whole.replace(b'"de"', b'"ed"'))
    assert status_of(*command, *options) == ExitStatus.BAD_FILE
    assert f"is not the score of line 2 of {lines} ('de'), but of another text" in capsys.readouterr().err
    assert scores.read_bytes() == whole.replace(b'"de"', b'"ed"')
    assert status_of(*command[:-2], "--resume") == ExitStatus.BAD_CONFIGURATION
    assert "--resume continues a file of scores in JSON lines: give --score" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model_dir is needed, for example: meshtf-decode --model_dir=runs/lm_tiny --prompt='def main('"),
        (["--model_dir=/dev/null/run"], "/dev/null/run is not the folder of a run"),
        (["--model_dir={folder}", "--promt=x"], "Unknown command line flag 'promt'. Did you mean: prompt"),
        (["--model_dir={folder}", "--prompt=x", "--method=gredy"], "flag --method=gredy: value should be one of"),
        (["--model_dir={folder}", "--prompt=x", "--seed=-1"], "\n  Decoding.seed = -1  is from --seed\n"),
        (
            ["--model_dir={folder}", "--prompt=x", "--beam_size=3"],
            "--beam_size has no effect with --method=greedy; it is for --method=beam",
        ),
        (
            ["--model_dir={folder}", "--prompt=x", "--draft_tokens=3"],
            "--draft_tokens has no effect without --draft, the run of the model that drafts",
        ),
        (["--model_dir={folder}", "--prompt=x", "--score", "--draft={folder}"], "--draft has no effect with --score"),
        (["--model_dir={folder}", "--prompt=x", "--draft={folder}/no"], "/no is not the folder of a run"),
        (
            ["--model_dir={folder}", "--prompt=x", "--draft={folder}", "--method=rank"],
            "--draft is for --method=greedy and --method=sample, and --method is rank",
        ),
        (
            ["--model_dir={folder}", "--prompt=x", "--score", "--top_k=3"],
            "--top_k has no effect with --score; it is for",
        ),
        (
            ["--model_dir={folder}", "--prompt=x", "--method=beam", "--beam_rules=transformers", "--alpha=1"],
            "--alpha has no effect with --beam_rules=transformers; it is for --beam_rules=gnmt",
        ),
        (
            ["--model_dir={folder}", "--prompt=x", "--stop=ab", "--method=beam"],
            "beam search can only stop at a single token, but the stop 'ab' is the ids",
        ),
        (
            ["--model_dir={folder}", "--prompt=x", "--top_p=2", "--method=sample"],
            "Decoding.top_p must be a number above",
        ),
        (["--model_dir={folder}", "--prompt=x", "--gin_param=Decoding.tempratur=1"], 'did you mean "temperature"?'),
        (["--model_dir={folder}", "--prompt=" + "x" * LENGTH], f"is too long: it has {LENGTH} tokens"),
        (["--model_dir={folder}", "--prompt_file={folder}/gone"], "gone cannot be read: No such file"),
        (["--model_dir={folder}", "--prompt=x", "--step=7"], "has no checkpoint of step 7; there are: 3"),
        (["--model_dir={folder}", "--prompt=x", "--layout=batch:row"], 'did you mean "rows"?'),
        (
            ["--model_dir={folder}", "--prompt=x", "--layout=batc:rows"],
            'has no dimension "batc"; did you mean "batch"?',
        ),
    ],
)
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*(a.format(folder=folder) for a in arguments)) == ExitStatus.BAD_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("meshtf-decode: error: ")
    assert message in captured.err
    assert not captured.out


def test_the_runs_configuration_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "operative_config.gin"
    before = file.read_text()
    assert status_of(f"--model_dir={folder}", "--prompt=x", f"--output={file}") == ExitStatus.BAD_CONFIGURATION
    assert f"would overwrite {file}, which this command reads" in capsys.readouterr().err
    assert file.read_text() == before


@pytest.mark.parametrize("flags", [["--max_new_tokens=1"], ["--score"], ["--score", "--format=jsonl", "--resume"]])
def test_the_prompts_are_not_overwritten(
    flags: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("ab\nc\n")
    command = (f"--model_dir={folder}", f"--prompt_file={lines}", f"--output={lines}")
    assert status_of(*command, *flags) == ExitStatus.BAD_CONFIGURATION
    assert "lines, which --prompt_file reads; give another --output" in capsys.readouterr().err
    assert lines.read_text() == "ab\nc\n"


def test_an_output_that_is_the_form_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "integer"}')
    command = (f"--model_dir={folder}", "--prompt=x", f"--json_schema={schema}", f"--output={schema}")
    assert status_of(*command) == ExitStatus.BAD_CONFIGURATION
    assert f"would overwrite {schema}, which --json_schema reads" in capsys.readouterr().err
    assert schema.read_text() == '{"type": "integer"}'


def test_an_output_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (f"--model_dir={folder}", "--prompt=x", "--max_new_tokens=1", "--output=/dev/null/x")
    assert status_of(*arguments) == ExitStatus.BAD_FILE
    assert "--output=/dev/null/x cannot be written: Not a directory" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("--help") == ExitStatus.DONE
    text = capsys.readouterr().out
    assert "meshtf-decode continues prompts with a trained model" in text
    for flag in ("prompt_file", "method", "beam_size", "stop", "score", "output", "mesh_shape", "gin_param"):
        assert f"\n  --{flag}\n" in text
