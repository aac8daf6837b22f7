from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import python_library
from meshtf.train.data.sources.python_library import PythonLibrary


def test_the_library_of_this_interpreter() -> None:
    documents = list(python_library().documents())
    names = [document.name for document in documents]
    assert {"os.py", "asyncio/tasks.py", "pydoc_data/topics.py"} <= set(names)
    assert names == sorted(names)
    assert not any({"test", "site-packages"} & set(Path(name).parts) for name in names)
    assert sum(len(document.content) for document in documents) > 5e6
    for document in documents:
        document.content.decode()  # the main job needs no choice about what does not decode
    assert documents == list(python_library().documents())


def test_which_files_are_taken(tmp_path: Path) -> None:
    for name in ("z.py", "a/b.py", "a-b.txt", "a/test/c.py", "site-packages/d.py", "a/e.so", "blank.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("" if name == "blank.py" else name)
    documents = PythonLibrary(str(tmp_path)).documents()
    assert [(document.name, document.content) for document in documents] == [
        ("a-b.txt", b"a-b.txt"),
        ("a/b.py", b"a/b.py"),
        ("z.py", b"z.py"),
    ]


def test_an_interpreter_without_source(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        list(PythonLibrary(str(tmp_path / "lib")).documents())
    assert f"keeps no source of its library in {tmp_path / 'lib'}" in str(caught.value)
    assert "TextFiles" in str(caught.value)
