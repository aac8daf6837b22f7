"""Labelled texts in files of each kind, and what is said of files that have none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import LabelledFiles

ROWS = [("good, very", "yes"), ('said "no"\nand left', "no"), ("ärger", "2")]
CSV = 'text,label,other\n"good, very",yes,1\n\n"said ""no""\nand left",no,2\närger,2,3\n'


def found(*files: Path, **columns: Any) -> list[tuple[tuple[str, ...], str | int]]:
    examples = LabelledFiles([str(path) for path in files], **columns).examples()
    return [(example.texts, example.label) for example in examples]


def test_kinds_of_files_say_the_same(tmp_path: Path) -> None:
    expected = [((text,), label) for text, label in ROWS]
    (tmp_path / "a.csv").write_text("\ufeff" + CSV)
    (tmp_path / "a.tsv").write_text(
        CSV.replace(",yes,1", "\tyes\t1")
        .replace("text,label,other", "text\tlabel\tother")
        .replace(",no,2", "\tno\t2")
        .replace(",2,3", "\t2\t3")
    )
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(CSV.replace("\n", "\r\n").replace("\r\nand", "\nand").encode()))
    (tmp_path / "c.jsonl").write_text("\n\n".join(json.dumps({"text": t, "label": x, "z": 1}) for t, x in ROWS))
    for name in ("a.csv", "a.tsv", "b.csv.gz", "c.jsonl"):
        assert found(tmp_path / name) == expected, name
    assert found(tmp_path / "a.csv", text="other", label="text", pair="label")[0] == (("1", "yes"), "good, very")
    names = [example.place for example in LabelledFiles(str(tmp_path / "c.jsonl")).examples()]
    assert names == [f"{tmp_path}/c.jsonl, row {number}" for number in (1, 2, 3)]


def test_a_long_text_in_csv_is_read_as_in_json(tmp_path: Path) -> None:
    text = "a long article " * 10_000  # Python's own limit of a field is 131,072 characters
    (tmp_path / "a.csv").write_text(f"text,label\n{text},yes\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text, "label": "yes"}))
    assert found(tmp_path / "a.csv") == found(tmp_path / "a.jsonl") == [((text,), "yes")]


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"text": [text for text, _ in ROWS], "label": [0, 1, 2], "other": [1.0, 2.0, 3.0]}
    parquet.write_table(arrow.table(table), tmp_path / "a.parquet")
    assert found(tmp_path / "a.parquet") == [((text,), number) for number, (text, _) in enumerate(ROWS)]
    with pytest.raises(ConfigurationError, match=r'a.parquet has no column "labels", only label, other, text; did you'):
        found(tmp_path / "a.parquet", label="labels")
    with pytest.raises(ConfigurationError, match=r'a.parquet, row 1, column "other": 1.0 is no text'):
        found(tmp_path / "a.parquet", text="other")
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigurationError, match=r"the Parquet file .*b.parquet cannot be read"):
        found(tmp_path / "b.parquet")


WRONG = {
    "no column": (
        "a.csv",
        b"text,labels\na,b\n",
        'a.csv has no column "label", only labels, text; did you mean "labels"?',
    ),
    "too many fields": (
        "a.csv",
        b"text,label\na,b\na,b,c\n",
        "a.csv, row 2: it has 3 fields, and the first line names 2",
    ),
    "too few": ("a.csv", b"text,label\na\n", "a.csv, row 1: it has 1 field, and the first line names 2 columns"),
    "no UTF-8": ("a.csv", b"text,label\na,b\na\xff,b\n", "a.csv, row 2, cannot be read: 'utf-8' codec can't decode"),
    "an open quote": ("a.csv", b'text,label\na,b\n"a,b\n', "a.csv, row 2, cannot be read: unexpected end of data"),
    "an empty label": (
        "a.csv",
        b"text,label\na,\n",
        "a.csv, row 1, column \"label\": '' is no label, a name or an int",
    ),
    "an empty text": ("a.csv", b"text,label\na,b\n,b\n", "a.csv, row 2, column \"text\": '' is no text"),
    "a blank text": ("a.json", b'{"text": " ", "label": 1}', "a.json, row 1, column \"text\": ' ' is no text"),
    "no JSON": ("a.jsonl", b'{"text": "a", "label": 1}\n\n{', "a.jsonl, row 2, is no JSON: Expecting property name"),
    "no object": ("a.json", b"[1]", "a.json, row 1: it is a list, and no object with keys"),
    "no key": ("a.json", b'{"text": "a"}', 'a.json, row 1 has no column "label", only text'),
    "null": ("a.json", b'{"text": null, "label": 1}', 'a.json, row 1, column "text": None is no text'),
    "a fraction": ("a.json", b'{"text": "a", "label": 1.5}', 'a.json, row 1, column "label": 1.5 is no label'),
    "true": ("a.json", b'{"text": "a", "label": true}', 'a.json, row 1, column "label": True is no label'),
    "another kind": ("a.xml", b"<a/>", "a.xml is not of a kind that LabelledFiles reads: .csv and .tsv"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_file_row_and_column(case: str, tmp_path: Path) -> None:
    name, content, words = WRONG[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        found(tmp_path / name)
    assert f"{tmp_path}/{words}" in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no file matches"):
        found(tmp_path / "nothing.csv")
