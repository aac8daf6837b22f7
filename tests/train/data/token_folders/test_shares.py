"""Tokens that the processes of a cluster make side by side are those of one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.cluster.cluster import Cluster
from meshtf.errors import ProcessLostError
from meshtf.files import appearing
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import TextTask
from meshtf.train.data._tokenized_text import TextReader
from meshtf.train.data.sources import shards
from meshtf.train.data.token_folders import shares
from meshtf.train.data.token_folders.making import TokenFolder
from meshtf.train.data.token_folders.shares import Shares
from tests.cluster.threads_as_processes import Texts, in_each

MakeTask = Callable[..., TextTask]


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards.shards_of, "__defaults__", (300,))


@pytest.fixture
def folder(task: MakeTask) -> TokenFolder:
    folder = task().token_folder
    assert folder is not None
    return folder


def test_every_byte_is_that_of_one_process(
    folder: TokenFolder, task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = task(tokens=str(tmp_path / "alone")).token_folder
    assert alone is not None
    alone.make(1, print)
    read, makers = TextReader.read_shard, set()

    def read_shard(self: TextReader, *arguments: object) -> object:
        makers.add(threading.current_thread())
        return read(self, *arguments)

    monkeypatch.setattr(TextReader, "read_shard", read_shard)
    counts = in_each(3, lambda cluster: folder.made_by_all(cluster, print).train.num_documents)
    assert counts == [alone.open().train.num_documents] * 3
    assert len(makers) == 3
    names = {path.name for path in alone.path.iterdir()}
    assert names == {path.name for path in folder.path.iterdir()}
    assert all((folder.path / name).read_bytes() == (alone.path / name).read_bytes() for name in names)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    makers.clear()
    assert in_each(3, lambda cluster: folder.made_by_all(cluster, print).train.num_documents) == counts
    assert makers == set()  # it was there


def test_a_failure_in_one_leaves_what_another_number_of_processes_goes_on_from(
    folder: TokenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TextReader.read_shard
    left, is_known = [4], threading.Event()

    def read_some(self: TextReader, *arguments: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise ProcessLostError("process 1 is gone")
        return read(self, *arguments)

    def outcome(cluster: Cluster) -> str:
        try:
            folder.made_by_all(cluster, print)
        except ProcessLostError:
            is_known.set()
            return "lost"
        return "made"

    class Ending(Texts):
        """A store of processes that hear of a loss."""

        def get(self, key: str, timeout_seconds: float) -> str | None:
            if is_known.is_set():
                raise ConnectionError("process 1 is gone")
            return super().get(key, timeout_seconds)

    monkeypatch.setattr(TextReader, "read_shard", read_some)
    assert "lost" in in_each(2, outcome, texts=Ending())
    assert not folder.is_made
    monkeypatch.setattr(TextReader, "read_shard", read)
    folder.make(1, print)
    assert folder.open().train.num_documents > 0
    assert not (folder.path / "shares").exists()


def test_a_disk_that_is_not_shared_is_told(
    folder: TokenFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appearing, "SECONDS_TO_SEE", 0.1)
    reader, shards = folder.reader, list(folder._shards())
    texts = Texts()
    addresses = ("host0:4000", "host1:4000")
    leader, other = (
        Shares(Cluster(i, addresses, 2.0, texts, None), "k", tmp_path / f"disk_of_{i}", print) for i in range(2)
    )
    texts.put("meshtf/k/shard/1", "")
    with pytest.raises(
        ConfigurationError,
        match=r"process 1 \(host1:4000\) has made .*disk_of_0/00000001.npz, which "
        r"process 0 \(host0:4000\) does not see\.\nA folder of tokens must be on a disk",
    ):
        list(leader.take_all(reader, shards, 0))
    with pytest.raises(ConfigurationError, match=r"process 0 \(host0:4000\) has made .*disk_of_1, which process 1"):
        other.make_own(reader, shards)


def test_a_long_wait_is_told(folder: TokenFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    texts = Texts()

    def say(line: str) -> None:
        said.append(line)
        texts.put("meshtf/k/first", "made")
        texts.put("meshtf/k/end", "")

    monkeypatch.setattr(shares, "SECONDS_OF_WAITING", 0.1)
    Shares(Cluster(1, ("host0:4000", "host1:4000"), 2.0, texts, None), "k", folder.path, say).make_own(
        folder.reader, []
    )
    assert said == ["waits for process 0 (host0:4000), which begins the tokens"]
