from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import TfRecords


def write(path: Path, records: Sequence[Mapping[str, tf.train.Feature]], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(tf.train.Example(features=tf.train.Features(feature=record)).SerializeToString())


def text(*values: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


NUMBER = tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))


def contents(source: TfRecords) -> list[bytes]:
    return [document.content for document in source.documents()]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_texts_in_the_order_of_files_and_records(tmp_path: Path, compression: str) -> None:
    write(tmp_path / "2.tfrecord", [{"text": text(b"three", b"four"), "id": NUMBER}], compression)
    write(tmp_path / "1.tfrecord", [{"text": text(b"one")}, {"text": text(b" ")}, {"text": text(b"two")}], compression)
    source = TfRecords(str(tmp_path / "*.tfrecord"), compression=compression)
    assert contents(source) == [b"one", b"two", b"three", b"four"]
    assert [document.name for document in source.documents()][1] == f"{tmp_path / '1.tfrecord'}, record 3"


def test_a_file_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    write(tmp_path / "1.tfrecord", [{"text": text(b"one")}])
    (tmp_path / "1.tfrecord").rename(tmp_path / os.fsdecode(b"caf\xe9.tfrecord"))
    assert contents(TfRecords(str(tmp_path / "*.tfrecord"))) == [b"one"]


def test_a_feature_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "1.tfrecord", [{"texts": text(b"one"), "id": NUMBER}])
    with pytest.raises(ConfigurationError) as caught:
        contents(TfRecords(str(tmp_path / "*")))
    assert 'record 1 has no feature "text", only id, texts; did you mean "texts"?' in str(caught.value)


def test_a_feature_of_numbers(tmp_path: Path) -> None:
    write(tmp_path / "1.tfrecord", [{"id": NUMBER}])
    with pytest.raises(ConfigurationError, match=r'the feature "id" holds numbers, and no text'):
        contents(TfRecords(str(tmp_path / "*"), feature="id"))


def test_a_damaged_file(tmp_path: Path) -> None:
    write(tmp_path / "1.tfrecord", [{"text": text(b"one")}])
    content = (tmp_path / "1.tfrecord").read_bytes()
    (tmp_path / "1.tfrecord").write_bytes(content[:-3])
    with pytest.raises(ConfigurationError, match=r"1\.tfrecord cannot be read.*\n.*TfRecords.compression \(''\)"):
        contents(TfRecords(str(tmp_path / "*")))


def test_records_that_are_no_examples(tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "1.tfrecord")) as writer:
        writer.write(b"text")
    with pytest.raises(ConfigurationError, match=r"record 1 is no tf\.train\.Example"):
        contents(TfRecords(str(tmp_path / "*")))


def test_values_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'gzip'; did you mean \"GZIP\"\?"):
        TfRecords("*", compression="gzip")
    with pytest.raises(ConfigurationError, match=r"no file matches"):
        contents(TfRecords(str(tmp_path / "*")))


def test_more_records_than_are_read_at_once_stay_in_order(tmp_path: Path) -> None:
    expected = [b"%d" % number for number in range(2500)]
    write(tmp_path / "1.tfrecord", [{"text": text(value)} for value in expected])
    assert contents(TfRecords(str(tmp_path / "1.tfrecord"))) == expected
