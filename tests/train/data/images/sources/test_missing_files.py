"""Missing folders, files, shards and features are named before anything is read."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ClassFolders, ImageRecords, ImageTars


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
        ".jpeg, .png, .bmp, .gif, .webp, and holds rose.txt"
    )
    for name in ("rose", "tulip", "violet"):
        (tmp_path / name).mkdir()
    (tmp_path / "tulip" / "0.png").write_bytes(b"")
    with pytest.raises(
        ConfigurationError, match=r'has no image in "rose", "violet"\. Remove the folders that are not classes, or'
    ):
        ClassFolders(str(tmp_path)).images()
    assert ClassFolders(str(tmp_path), ["rose", "tulip", "violet"]).images().count == 1


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
        f"1 shard is missing out of the 4 that the name of {tmp_path}/train-00000-of-00004 promises: "
        f"{tmp_path}/train-00001-of-00004\n"
        "Copy the files here, or give ImageRecords.patterns that match only complete data sets."
    )
    with pytest.raises(ConfigurationError, match=r"3 shards are missing out of the 4"):
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


def write_tar(path: Path, members: Mapping[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_tars(tmp_path: Path, pixels: Any, jpeg_of: Any) -> None:
    """An image and its label are found beside others; images are read from where they are."""
    images = [jpeg_of(pixels(8 + i, 9, i)) for i in range(3)]
    write_tar(
        tmp_path / "a.tar",
        {"x/0.jpg": images[0], "x/0.cls": b"4", "x/0.json": b"{}", "x/1.cls": b"0\n"} | {"x/1.JPG": images[1]},
    )
    write_tar(tmp_path / "b.tar", {"2.cls": b"2", "2.png": images[2], "x/._2.png": b"hidden", ".2.cls": b"hidden"})
    found = ImageTars(str(tmp_path / "*.tar")).images()
    read = [found.read(tf.constant(i)) for i in range(found.count)]
    assert [image.numpy() for image, _ in read] == images
    assert [int(label) for _, label in read] == [4, 0, 2]
    assert found.place(2) == f'{tmp_path}/b.tar, sample "2"'


@pytest.mark.parametrize(
    ("members", "said"),
    {
        "no label": ({"0.jpg": b""}, r', sample "0": it has no file of "cls", only jpg\nImageTars.label is the ending'),
        "no image": (
            {"0.cls": b"1"},
            r', sample "0": it has no image \(jpg, jpeg, png, webp\), only cls\nImageTars.label is',
        ),
        "wrong label": ({"0.jpg": b"", "0.cls": b"cat"}, r", sample \"0\": its label 'cat' is no class number"),
        "huge label": ({"0.jpg": b"", "0.cls": b"9" * 30}, r", sample \"0\": its label '9{30}' is no class number"),
        "nothing": ({}, r"there is no image in .*a\.tar"),
    }.values(),
)
def test_wrong_tars(tmp_path: Path, members: dict[str, bytes], said: str) -> None:
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(ConfigurationError, match=said):
        ImageTars(str(tmp_path / "a.tar")).images()
    (tmp_path / "a.tar").write_bytes(b"no tar" * 200)
    with pytest.raises(
        ConfigurationError, match=r"the tar file .*a\.tar cannot be read: .*\nIt is damaged, compressed,"
    ):
        ImageTars(str(tmp_path / "a.tar")).images()
