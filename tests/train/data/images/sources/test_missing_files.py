"""Missing folders, files, shards and features are named before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ClassFolders, ImageRecords


def test_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as error:
        ClassFolders("flowers").images()
    assert str(error.value) == (
        f'ClassFolders.folder: there is no folder "flowers" (in {tmp_path}). It must hold a folder of images for each '
        "class."
    )


def test_no_images(tmp_path: Path) -> None:
    (tmp_path / "rose.txt").write_text("red")
    with pytest.raises(ConfigurationError) as error:
        ClassFolders(str(tmp_path)).images()
    assert str(error.value) == (
        f'there is no image in "{tmp_path}". It must hold a folder for each class, with files that end with .jpg, '
        ".jpeg, .png, .bmp, .gif, and holds rose.txt"
    )


def test_a_folder_that_is_no_class(folder: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r'has the folder "dog", which ClassFolders.classes does not name; did'
    ):
        ClassFolders(str(folder), ["cat", "dogs"]).images()
    found = ClassFolders(str(folder), ["dog", "bird", "cat"]).images()
    assert [int(found.read(index)[1]) for index in (0, 9)] == [0, 2]
    assert found.class_names == ("dog", "bird", "cat")


def test_missing_shards(tmp_path: Path, write_records: Any) -> None:
    for shard in (0, 2, 3):
        write_records(tmp_path / f"train-{shard:05d}-of-00004", [(b"", 1)])
    with pytest.raises(ConfigurationError) as error:
        ImageRecords(str(tmp_path / "train-*")).images()
    assert str(error.value) == (
        f"1 shard is missing of the 4 that the name of {tmp_path}/train-00000-of-00004 promises: "
        f"{tmp_path}/train-00001-of-00004\n"
        "Bring the files here, or give ImageRecords.patterns that match whole data sets only."
    )
    with pytest.raises(ConfigurationError, match=r"3 shards are missing of the 4"):
        ImageRecords(str(tmp_path / "train-00000*")).images()


def test_damaged_records(tmp_path: Path, write_records: Any) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [(b"x" * 50, 1)] * 2)
    with pytest.raises(ConfigurationError) as error:
        ImageRecords(str(path), label="image/class/labels").images()
    assert str(error.value) == (
        f'{path}, record 1 has no feature "image/class/labels", only image/class/label, image/encoded; did you mean '
        '"image/class/label"?\nImageRecords.label says which feature is the label.'
    )
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigurationError, match=r"cannot be read: record 2 is cut short\nIt is damaged, compressed,"):
        ImageRecords(str(path)).images()
    path.write_bytes(b"")
    with pytest.raises(ConfigurationError, match=f"there is no record in {path}"):
        ImageRecords(str(path)).images()
    write_records(path, [(b"", 1)])
    path.write_bytes(path.read_bytes().replace(b"image", b"\xff\xff\xff\xff\xff"))
    with pytest.raises(ConfigurationError, match=f"{path}, record 1 is no tf.train.Example"):
        ImageRecords(str(path)).images()
