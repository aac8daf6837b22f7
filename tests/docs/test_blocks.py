"""Every block of code of README.md and docs/*.md works as copied.

Python blocks of a page run in order, as one program, in an interpreter that has set up no devices; commands run between
them, and blocks with a title are files. Minutes of training become two steps. What is marked `<!-- long -->` runs in
`make test-long`; in `make test` its flags and configurations are read. Fragments of gin name only what there is.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import gin
import numpy as np
import pytest
import safetensors.numpy
from page_run import run_page
from pages import PAGES, TREE, Block, blocks_of, name_of

from meshtf.bin import compare, decode, dialog, eval, export, plan, quantize, serve, sweep, tokenize, train, vocab  # noqa: A004
from meshtf.bin import compile as compile_program
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf_programs.command_lines import checkpoint
from meshtf_programs.launching import launch

LANGUAGES = {"python", "bash", "gin", "json", "text"}
CONFIGURED = {
    module.PROGRAM: module
    for module in (compile_program, decode, dialog, eval, export, plan, quantize, serve, sweep, tokenize, train, vocab)
}
LONG_PAGES = [page for page in PAGES if any(block.is_long for block in blocks_of(page.read_text()))]

# Where the names in a page's fragments are from, if the page does not say.
KNOWN = """
import meshtf.layers.pipeline_schedule
import meshtf.models.transformer_lm
import meshtf.train.data
import meshtf.train.quality
import meshtf.train.training
"""

# A gin file that the command before makes, and the one that is read beside it.
MADE, BESIDE_IT = "imported/model.gin", "fine_tuning.gin"

# Trainings in short: as many weights, in two steps.
SHORTER = {
    "meshtf-train --gin_file=lm_tiny.gin": ["Training.num_steps=2", "TextTask.num_evaluation_examples=32"],
    "meshtf-train --gin_file=series.gin": ["Training.num_steps=2", "waves.num_examples=640", "waves.num_held_out=128"],
    "meshtf-train --gin_file=ssd_tiny.gin": [
        "Training.num_steps=2", "Training.batch_size=4", "drawn_objects.num_train=8", "drawn_objects.num_held_out=4"
    ],
}  # fmt: skip
SHORT = {start: " ".join([start, *(f"--gin_param='{p}'" for p in more)]) for start, more in SHORTER.items()}
MAKE_TRAIN = Block("bash", None, True, 0, SHORT["meshtf-train --gin_file=lm_tiny.gin"])


def test_blocks_are_found_with_their_lines() -> None:
    page = textwrap.dedent(
        """\
        # Title
        ```python title="a.py"
        a = 1
        ```
        <!-- long -->
        ```bash
        PYTHONPATH=. meshtf-train --gin_file=a.gin \\
            --report  # a remark
        ```
        """
    )
    file, command = blocks_of(page)
    assert file == Block("python", "a.py", False, 3, "a = 1\n")
    assert command.is_long
    assert command.commands == [["PYTHONPATH=.", "meshtf-train", "--gin_file=a.gin", "--report"]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nimport meshtf as mtf\n```\n```python\nmtf.SpmdMeshImpl('a:2', '')\n```", r"DeviceError"),
        ("```bash\nmeshtf-train --gin_fil=a.gin\n```", r"page\.md:2: status 2 of meshtf-train --gin_fil=a\.gin"),
    ],
)
def test_a_block_that_fails_is_told(text: str, error: str, tmp_path: Path) -> None:
    assert re.search(error, run_page("page.md", tmp_path, blocks_of(text)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_has_a_language(page: Path) -> None:
    text = page.read_text()
    blocks = blocks_of(text)
    assert 2 * len(blocks) == len(re.findall(r"^ *```", text, re.MULTILINE))
    assert [f"{page.name}:{block.line}" for block in blocks if block.language not in LANGUAGES] == []


@pytest.mark.timeout(900)  # a page is several programs, one after the other, and the machine may be busy
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_runs_as_copied(page: Path, tmp_path: Path) -> None:
    blocks = [shortened(block) for block in blocks_of(page.read_text()) if not block.is_long and not is_make(block)]
    make_sources(page, tmp_path)
    assert run_page(str(page), tmp_path, blocks) == ""


@pytest.mark.long
@pytest.mark.parametrize("page", LONG_PAGES, ids=name_of)
def test_long_blocks_run_as_copied(page: Path, tmp_path: Path) -> None:
    blocks = [shortened(block) for block in blocks_of(page.read_text()) if not is_make(block)]
    if any("runs/lm_tiny" in block.text for block in blocks):
        blocks.insert(0, MAKE_TRAIN)
    make_sources(page, tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    assert run_page(str(page), tmp_path, blocks) == ""


def make_sources(page: Path, folder: Path) -> None:
    """Makes the published weights that a page begins with, small."""
    if page.name == "weights.md":
        make_byte_gpt2(folder / "gpt2")


def make_byte_gpt2(folder: Path) -> None:
    """The stored GPT-2 of Transformers', for the ids of bytes."""
    shutil.copytree(TREE / "tests/checkpoint/conversion/models/gpt2", folder)
    configuration = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**configuration, "vocab_size": 258}))
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    table = weights["transformer.wte.weight"]
    weights["transformer.wte.weight"] = np.resize(table, (258, table.shape[1]))
    safetensors.numpy.save_file(weights, folder / "model.safetensors")


def is_make(block: Block) -> bool:
    return any(words[0] == "make" for words in block.commands)


def shortened(block: Block) -> Block:
    """The block with two steps in place of minutes of training."""
    text = block.text
    for start, short in SHORT.items():
        text = text.replace(start, short)
    return dataclasses.replace(block, text=text) if block.language == "bash" else block


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_long_blocks_and_fragments_are_read(page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page.read_text()):
        if block.is_long and block.language == "python":
            compile(block.text, str(page), "exec")
        for words in block.commands if block.is_long or is_make(block) else ():
            check_command(words)
        if block.language == "gin" and block.title in (None, BESIDE_IT):
            gin.clear_config()
            (tmp_path / "fragment.gin").write_text(KNOWN + block.text)
            read_configuration([tmp_path / "fragment.gin"], [])
        if block.language == "json":
            for line in block.text.splitlines():
                json.loads(line)


def check_command(words: Sequence[str]) -> None:
    """A program of ours with flags that it knows and configurations that it can read; or a target of make."""
    words = words[: min([words.index(sign) for sign in "<>" if sign in words], default=len(words))]
    if words[0] == "make":
        assert words[1] in re.findall(r"^([\w-]+):", (TREE / "Makefile").read_text(), re.MULTILINE)
    elif words[0] in CONFIGURED:
        values = CONFIGURED[words[0]].command_line().parse(words)
        if "gin_file" in values and MADE not in values.gin_file:
            read_configuration([find_gin_file(name) for name in values.gin_file], values.gin_param)
    elif words[0] == launch.PROGRAM:
        check_command(launch.parse(words).command)
    elif words[0] in {checkpoint.PROGRAM, compare.PROGRAM}:
        {checkpoint.PROGRAM: checkpoint, compare.PROGRAM: compare}[words[0]].parse(words)
    else:
        assert words[0] in {"source", "printf"}
