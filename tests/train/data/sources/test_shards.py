"""Shards hold the documents of their source, in its order, whatever their size."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from meshtf.train.data import JsonLines, TextFiles
from meshtf.train.data.sources.document import Source
from meshtf.train.data.sources.shards import shards_of


def contents(source: Source) -> list[bytes]:
    return [document.content for document in source.documents()]


@pytest.mark.parametrize("shard_bytes", [1, 2, 7, 40, 10_000])
def test_documents_of_shards(tmp_path: Path, many_texts: Source, shard_bytes: int) -> None:
    lines = [b'{"text": "%s"}' % content for content in contents(many_texts)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines[:50]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"\r\n".join(lines[50:60])))
    (tmp_path / "c.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n\n".join(lines[60:70]) + b"\n")
    (tmp_path / "d.jsonl").write_bytes(b"\n".join(lines[70:]).decode().encode("utf-16"))
    every = str(tmp_path / "*")
    sources = [JsonLines(every), TextFiles(every), TextFiles(every, "line"), TextFiles(every, "paragraph"), many_texts]
    for source in sources:
        shards = list(shards_of(source, shard_bytes))
        assert [content for shard in shards for content in contents(shard)] == contents(source)
        assert len(shards) > 1 or shard_bytes == 10_000
