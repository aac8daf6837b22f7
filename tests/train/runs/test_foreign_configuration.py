"""Configurations of others: what they would execute is named, and is not executed unless they are trusted."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest

from meshtf.bin import decode, export
from meshtf.bin import eval as evaluation
from meshtf.train import RunFolder
from meshtf.train.configuration import ConfigurationError
from meshtf.train.runs._foreign_configuration import check_foreign
from meshtf_programs.exit_status import ExitStatus

TOUCH = "import pathlib; pathlib.Path({!r}).touch()"


@pytest.fixture(autouse=True)
def _clear() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    gin.clear_config()
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another's run below the user's folder, where Python looks for modules, too. Its code leaves a trace."""
    user = tmp_path / "user"
    run = user / "runs" / "another"
    (run / "inside").mkdir(parents=True)
    trace = str(tmp_path / "executed")
    (run / "evil.py").write_text(TOUCH.format(trace))
    (run / "inside" / "__init__.py").write_text(TOUCH.format(trace))
    (user / "own_model.py").write_text("")
    (user / "own").mkdir()
    (user / "own" / "model.py").write_text("")
    (user / "linked.py").symlink_to(run / "evil.py")
    (user / "mine.gin").write_text("import evil")
    (run / "gpt2.gin").symlink_to(user / "mine.gin")
    (run / "model.gin").write_text("include 'operative_config.gin'\nimport evil")
    (run / "harmless.gin").write_text("include 'bert.gin'\ninclude 'harmless.gin'\nTraining.num_steps = 3")
    monkeypatch.chdir(user)
    monkeypatch.syspath_prepend(str(user))
    importlib.invalidate_caches()
    return run


REFUSED = {
    "beside the configuration": ("import evil", "line 1: import evil: code in the run's own folder, {run}/evil.py"),
    "a package beside it": ("import inside", "line 1: import inside: code in the run's own folder, {run}/inside"),
    "from a package": ("from inside import x", "line 1: from inside import x: code in the run's own folder"),
    "from the current folder": ("import runs.another.evil", "import runs.another.evil: code in the run's own folder"),
    "under another name": ("import evil as model", "line 1: import evil as model: code in the run's own folder"),
    "by a link": ("import linked", "line 1: import linked: code in the run's own folder, {user}/linked.py"),
    "Python's own": ("import antigravity", "line 1: import antigravity: Python's own, which no model needs"),
    "any function": (
        "from __gin__ import dynamic_registration\nimport os\nTraining.task = @os.getcwd()",
        "line 1: from __gin__ import dynamic_registration: lets it call any function of any module",
    ),
    "another file": ("include '/etc/passwd'", "line 1: include: /etc/passwd, another file"),
    "of the current folder": ("include 'mine.gin'", "line 1: include: mine.gin, another file"),
    "by a link called as meshtf's": ("include 'gpt2.gin'", "line 1: include: gpt2.gin, another file"),
    "by a file beside it": ("include 'model.gin'", "model.gin, line 2: import evil: code in the run's own folder"),
    "behind bindings": ("Training.num_steps = 3\n\nimport evil", "line 3: import evil: code in the run's own folder"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_be_executed_is_named_and_is_not(folder: Path, tmp_path: Path, text: str) -> None:
    configuration, words = REFUSED[text]
    (folder / "operative_config.gin").write_text(configuration)
    with pytest.raises(ConfigurationError) as caught:
        RunFolder.existing(folder).read_training()
    message = str(caught.value)
    assert message.startswith(
        f"{folder}/operative_config.gin has statements that execute code, which meshtf does only on request:\n"
    )
    assert words.format(run=folder, user=folder.parent.parent) in message
    assert message.endswith("give --trust_config (in Python: trust_config=True).")
    assert not (tmp_path / "executed").exists()


TAKEN = {
    "meshtf's own": "import meshtf.models.mlp_classifier\nimport meshtf.train.digits",
    "one's own module": "import own_model",
    "one's own package": "import own.model",
    "what is installed": "import rich.console",
    "what is loaded": "import os\nimport os.path",
    "nothing": "# nothing\nTraining.num_steps = 3\nTraining.model = @own/Model()\nSIZE = 3\nx.batch_size = %SIZE\n",
    "what is nowhere": "import no_such_module_at_all",
    "meshtf's gin file, and one beside it": "include 'digits_mlp.gin'\ninclude 'harmless.gin'",
}


@pytest.mark.parametrize("text", TAKEN)
def test_ones_own_needs_no_trust(folder: Path, text: str) -> None:
    (folder / "operative_config.gin").write_text(TAKEN[text])
    check_foreign(folder / "operative_config.gin")


UNREADABLE = {
    "no gin": b"Training.num_steps = (",
    "not UTF-8": b"\xff\xfe",
    "deep": b"x = " + b"[" * 5_000,
    "NUL": b"import a\0b",
}


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_configuration_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "operative_config.gin").write_bytes(UNREADABLE[text])
    with pytest.raises(ConfigurationError, match=r"operative_config\.gin cannot be read: "):
        check_foreign(tmp_path / "operative_config.gin")


def test_a_bracket_that_is_not_closed_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "operative_config.gin").write_bytes(UNREADABLE["no gin"])
    with pytest.raises(
        ConfigurationError, match=r"cannot be read: line \d: [^()]*: a bracket or a quote is not closed$"
    ):
        check_foreign(tmp_path / "operative_config.gin")


def test_a_configuration_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**40)
    for name, words in (
        ("pipe", "it is a named pipe, not a regular file"),
        ("large", "it has 1,099,511,627,776 bytes"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            check_foreign(tmp_path / name)


@pytest.mark.parametrize("program", [decode, evaluation, export])
def test_programs_ask_for_trust(
    folder: Path, tmp_path: Path, program: object, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "operative_config.gin").write_text("import runs.another.evil")
    arguments = [f"--model_dir={folder}", *([f"--output={tmp_path / 'out'}"] if program is export else [])]
    assert program.main(["program", *arguments]) == ExitStatus.BAD_CONFIGURATION  # type: ignore[attr-defined]
    assert "give --trust_config" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()
    assert program.main(["program", *arguments, "--trust_config"]) == ExitStatus.BAD_CONFIGURATION  # type: ignore[attr-defined]
    assert (tmp_path / "executed").exists()
