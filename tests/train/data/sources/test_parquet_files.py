from __future__ import annotations

import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ParquetFiles

TEXTS = [f"text {number}" for number in range(600)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pyarrow.table({"text": [*TEXTS, None, " "], "id": range(602)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=250)
    return tmp_path / "a.parquet"


def contents(path: Path, **options: str) -> list[str]:
    return [document.content.decode() for document in ParquetFiles(str(path), **options).documents()]


def test_texts_in_order(path: Path) -> None:
    assert contents(path) == TEXTS
    assert [document.name for document in ParquetFiles(str(path)).documents()][300] == f"{path}, row 301"


def test_texts_as_categories(tmp_path: Path) -> None:
    """As pandas writes a column of few different texts."""
    column = pyarrow.array(["b", "a", None, "b"]).dictionary_encode()
    numbers = pyarrow.array([1, 2, 1, 2]).dictionary_encode()
    pyarrow.parquet.write_table(pyarrow.table({"text": column, "id": numbers}), tmp_path / "c")
    assert contents(tmp_path / "c") == ["b", "a", "b"]
    with pytest.raises(ConfigurationError, match=r'the column "id" holds int64, and no text'):
        contents(tmp_path / "c", column="id")


def test_columns_that_are_none(path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r'has no column "texts", only id, text; did you mean "text"\?\nParquet'
    ):
        contents(path, column="texts")
    with pytest.raises(ConfigurationError, match=r'a\.parquet: the column "id" holds int64, and no text'):
        contents(path, column="id")


def test_a_damaged_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match=r"the Parquet file .*a\.parquet cannot be read: "):
        contents(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"ParquetFiles reads with pyarrow.*\n.*pip install 'meshtf\[arrow\]'"):
        contents(path)
