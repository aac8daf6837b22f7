"""meshtf-plan: a report for any mesh, without devices."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import socket
from pathlib import Path

import pytest

from meshtf.bin.layouts.plan_layouts import LayoutPlanner
from meshtf.bin.plan import command_line, main
from meshtf.costs import load_machine, machine_text
from meshtf.plan_view.plan_server import PlanServer
from meshtf.train.configuration import find_gin_file
from meshtf.train.gin_files.bindings import Parameter

LLAMA_70B = [
    "meshtf-plan",
    "--gin_file=lm_tiny.gin",
    "--gin_file=llama_2_70b.gin",
    "--mesh_shape=rows:64;cols:8",
    "--gin_param=TextTask.length=4096",
    "--gin_param=Training.batch_size=1024",
    "--gin_param=TransformerStack.recompute='nothing'",
]


def test_a_large_model_is_planned_for_a_mesh_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    sharded = "--gin_param=Training.parameter_layout='heads:cols;d_ff:cols;vocab:cols;d_model:rows'"
    assert main([*LLAMA_70B, sharded, "--full"]) == 0
    text = capsys.readouterr().out
    assert "68,976,648,192 parameters, mesh [rows:64 cols:8] (512 cores)" in text
    assert "peak memory" in text
    assert "all_gather" in text


def test_layouts_that_share_a_graph_are_planned_as_those_that_do_not() -> None:
    files = [find_gin_file("digits_mlp.gin")]
    layouts = [
        "batch:rows",
        "layout=batch:rows;hidden:cols parameter_layout=hidden:rows",
        "batch_size=128 layout=batch:cols",
    ]

    def planner(*parameters: str) -> LayoutPlanner:
        mesh = Parameter("--mesh_shape", "Training.mesh_shape = 'rows:4;cols:2'")
        own = [Parameter("--gin_param", parameter) for parameter in parameters]
        return LayoutPlanner(files, [mesh, *own], None, load_machine("v4"), allow_unread=False)

    one = planner()
    training, first = one.as_configured("")
    found = one.compared(layouts)
    larger = one.again(training, dataclasses.replace(found[1].settings, batch_size=192))
    alone = [
        planner("Training.layout = 'batch:rows'"),
        planner("Training.layout = 'batch:rows;hidden:cols'", "Training.parameter_layout = 'hidden:rows'"),
        planner("Training.layout = 'batch:cols'", "Training.batch_size = 128"),
        planner(
            "Training.layout = 'batch:rows;hidden:cols'",
            "Training.parameter_layout = 'hidden:rows'",
            "Training.batch_size = 192",
        ),
    ]
    for shared, own in zip([*found, larger], (p.as_configured("")[1] for p in alone), strict=True):
        assert str(shared.report) == str(own.report)
        assert (shared.prediction, shared.headline) == (own.prediction, own.headline)
    assert str(one.again(training, first.settings).report) == str(first.report)


def test_a_layout_is_found_for_a_mesh_and_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    digits = ["meshtf-plan", "--gin_file=digits_mlp.gin", "--layout=auto", "--mesh_shape=auto:4"]
    assert main([*digits, "--machine=v5e", "--search_operations=600"]) == 0
    text = capsys.readouterr().out
    assert "layout of train_step on v5e" in text
    assert "(4 cores)" in text
    assert main(digits) == 2
    assert "there is no machine to predict its time on" in capsys.readouterr().err


def test_a_layout_is_found_beside_another_and_says_what_ended_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    digits = ["meshtf-plan", "--gin_file=digits_mlp.gin", "--mesh_shape=rows:2", "--layout=batch:rows"]
    assert main([*digits, "--machine=v5e", "--compare=auto", "--search_operations=300"]) == 0
    rows = {line.split("│")[0].strip(): line.split("│")[1:] for line in capsys.readouterr().out.splitlines()}
    as_configured, found = rows["predicted step"]
    assert as_configured.split()[1] == found.split()[1] == "us"
    assert float(found.split()[0]) <= float(as_configured.split()[0])
    assert main([*digits[:3], "--layout=auto", "--machine=v5e", "--search_operations=300"]) == 0
    text = capsys.readouterr().out
    assert "it reached its limit of 300 planned operations, " in text
    assert "; --search_operations=1200 (max_planned_operations of auto_layout) lets it continue" in text
    assert main([*digits, "--compare=auto"]) == 2
    assert (
        "--compare='auto' is not possible: Training.layout is \"auto\", but there is no machine"
        in capsys.readouterr().err
    )


def test_the_bubble_of_a_pipelined_model_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    bindings = ("TransformerStack.pipeline=@PipelineSchedule()", "PipelineSchedule.num_microbatches=8")
    options = [f"--gin_param={binding}" for binding in (*bindings, "PipelineSchedule.num_stages=2")]
    where = ["--mesh_shape=stages:2;data:4", "--layout=stage:stages;batch:data"]
    assert main(["meshtf-plan", "--gin_file=lm_tiny.gin", *options, *where, "--full"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("pipelines; the bubble is the share of stage-steps that compute nothing useful")
    assert lines[start + 3].split()[:6] == ["11.1%", "2", "8", "1", "9", "2"]


def test_gradients_are_summed_as_configured(capsys: pytest.CaptureFixture[str]) -> None:
    """A reduce-scatter over two cores sends half of a slice; in bfloat16, or undivided, the gradients' bytes differ."""
    texts = []
    for more in ([], ["Training.gradient_sum_dtype='bfloat16'"], ["Training.shard_weight_update=False"]):
        digits = ["meshtf-plan", "--gin_file=digits_mlp.gin", "--mesh_shape=rows:2", "--layout=batch:rows", "--full"]
        assert main([*digits, *(f"--gin_param={binding}" for binding in more)]) == 0
        texts.append(capsys.readouterr().out)
    assert ["reduce_scatter" in text for text in texts] == [True, True, False]
    assert texts[0] != texts[1]


def test_what_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = [option.replace("cols:8", "cols:3") for option in LLAMA_70B]
    assert main([*elsewhere, "--gin_param=Training.max_padding=0.0"]) == 2
    assert '"vocab" of size 32000 does not divide into 3 parts' in capsys.readouterr().err
    assert main([*LLAMA_70B, "--layout=batch:row"]) == 2
    assert 'did you mean "rows"?' in capsys.readouterr().err


def test_a_recipe_sets_the_layouts_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["meshtf-plan", "--gin_file=lm_tiny.gin", "--full"]
    assert main([*tiny, "--recipe=fsdp_tensor_sequence"]) == 0
    text = capsys.readouterr().out
    for line in (
        "layout            batch:rows;heads:cols;d_ff:cols;vocab:cols",
        "parameter layout  d_model:rows;heads:cols;d_ff:cols;vocab:cols",
        "activation layout length:cols",
    ):
        assert line in text
    assert "megatron_sequence: Megatron with sequence parallelism" in " ".join(command_line().help_text().split())
    assert main([*tiny, "--recipe=megatro"]) == 2
    assert "megatron" in capsys.readouterr().err


def test_a_layout_in_gin_may_be_a_dict_with_places(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["meshtf-plan", "--gin_file=lm_tiny.gin", "--full"]
    layout = "Training.layout={'batch': 'rows.0', 'decoder': {'d_ff': ('rows.1', 'cols')}}"
    parts = ["--gin_param=Training.mesh_shape='rows:4;cols:2'", "--gin_param=Training.axis_parts='rows:2x2'"]
    assert main([*tiny, f"--gin_param={layout}", *parts, "--compare=d_ff:rows.0;batch:rows.1"]) == 0
    out = capsys.readouterr().out
    assert "layout            batch:rows.0;decoder{d_ff:rows.1+cols}" in out
    assert "not possible" not in out
    assert main([*tiny, "--layout=batch:rows.0"]) == 2
    assert 'for parts of rows give axis_parts, such as "rows:2x4"' in capsys.readouterr().err
    assert main([*tiny, "--layout=batch:rows;decodr{d_ff:cols}"]) == 2
    error = capsys.readouterr().err
    assert 'no scope and no name of the program matches "decodr"; did you mean "decoder"?' in error
    assert "is from --layout" in error


DIGITS = ["meshtf-plan", "--gin_file=digits_mlp.gin", "--mesh_shape=rows:2;cols:2"]


def test_layouts_are_compared_and_one_that_is_not_possible_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "plan.html"
    compared = ["--compare=batch:nowhere", "--compare=data", "--compare=mesh_shape=rows:4 layout=batch:rows"]
    assert main([*DIGITS, "--layout=batch:cols", *compared, f"--html={page}", "--machine=v4"]) == 2
    out, error = capsys.readouterr()
    for text in ("as configured", "not possible", "batch:rows+cols", "predicted step"):
        assert text in out
    assert "meshtf-plan: --compare='batch:nowhere' is not possible: layout rule" in error
    assert 'names mesh axis "nowhere", which mesh [rows:2 cols:2] does not have' in error
    assert "mesh_shape=rows:4 layout=batch:rows" in page.read_text()
    assert main([*DIGITS, "--json", "--compare=batch_size=128"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["batch_size"], second["batch_size"]) == (64, 128)
    assert first["report"]["memory"]["peak"] < second["report"]["memory"]["peak"]


@pytest.mark.parametrize(
    "text", ["fdsp", "batch", "size=3", "batch_size=many", "layout=a:b layout=c:d", "so layout=a:b"]
)
def test_what_cannot_be_compared_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DIGITS, f"--compare={text}"]) == 2
    error = capsys.readouterr().err
    assert f"--compare={text!r} is not a recipe, a layout or settings" in error
    assert "megatron_sequence" in error


def test_a_page_that_cannot_be_written_is_told_before_anything_is_planned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for place, why in ((tmp_path / "none" / "plan.html", "there is no folder"), (tmp_path, "--html is a folder")):
        assert main([*DIGITS, f"--html={place}"]) == 4
        error = capsys.readouterr().err
        assert why in error
        assert str(tmp_path) in error
    assert not list(tmp_path.iterdir())


def test_a_page_replaces_no_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert main([*DIGITS, f"--html={pipe}"]) == 2
    assert f"--html={pipe} is a device or a pipe" in capsys.readouterr().err
    assert pipe.is_fifo()


def test_a_page_does_not_overwrite_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, base, machine = tmp_path / "own.gin", tmp_path / "base.gin", tmp_path / "own.toml"
    own.write_text('include "base.gin"\n')
    base.write_text('include "digits_mlp.gin"\n')
    machine.write_text(machine_text(load_machine("v4")))
    for page, flag in ((own, "--gin_file"), (base, "this command"), (machine, "--machine")):
        before = page.read_text()
        assert main([*DIGITS, f"--gin_file={own}", f"--machine={machine}", f"--html={page}"]) == 2
        assert f"--html={page} would overwrite {page}, which {flag} reads" in capsys.readouterr().err
        assert page.read_text() == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--serve", "--html=plan.html"], "--html has no effect with --serve"),
        (["--serve", "--json"], "--json has no effect with --serve"),
        (["--port=8000"], "--port has no effect without --serve"),
    ],
)
def test_flags_without_effect_are_refused(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DIGITS, *given]) == 2
    assert said in capsys.readouterr().err


def test_a_machine_that_is_unknown_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DIGITS, "--machine=h300"]) == 2
    error = capsys.readouterr().err
    assert 'there is no machine "h300". Did you mean "h200"?' in error
    assert "In call to configurable" not in error


def test_a_port_in_use_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*DIGITS, "--serve", f"--port={port}"]) == 2
    assert f"--port={port}: it is in use on 127.0.0.1" in capsys.readouterr().err


def test_the_page_is_served_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(server: PlanServer) -> None:
        assert 'id="plan"' in server.page
        assert server.plan_path in server.page
        raise KeyboardInterrupt

    monkeypatch.setattr(PlanServer, "serve", interrupted)
    assert main([*DIGITS, "--serve"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("http://127.0.0.1:")
    assert "Ctrl-C ends it" in out


@pytest.mark.parametrize("example", command_line().examples)
def test_examples_of_the_help_work(
    example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(example)) == 0, capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["meshtf-plan", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--mesh_shape" in text
    assert "--backend" not in text
