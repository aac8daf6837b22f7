"""Files that are cut short, changed or missing: each is named, and none is loaded."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from small_training import Trained, assert_same_bits, build, by_layer

from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint, manifest, restore
from meshtf.errors import CheckpointError, DamagedCheckpointError

DATA, INDEX, MANIFEST = "variables.data-00000-of-00001", "variables.index", "manifest.json"
FILES = [DATA, INDEX, MANIFEST, "checkpoint"]


@pytest.fixture
def copies(trained: Trained, tmp_path: Path) -> CheckpointFolder:
    """Two whole checkpoints, of steps 2 and 3."""
    folder = CheckpointFolder(tmp_path / "copies")
    for step in (2, 3):
        shutil.copytree(trained.saved.folder, folder.path(step))
    return folder


def verified(path: Path) -> SavedCheckpoint:
    saved = SavedCheckpoint.open(path)
    saved.verify()
    return saved


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "cut short", "empty", "longer"])
def test_a_damaged_file_is_named_and_passed_over(
    copies: CheckpointFolder, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = copies.path(3) / name
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"cut short": content[:-1], "empty": b"", "longer": content + b"\0"}[damage])
    with pytest.raises(DamagedCheckpointError) as caught:
        verified(copies.path(3))
    assert f"checkpoint {copies.path(3)} is damaged: {name} " in str(caught.value)
    with caplog.at_level(logging.WARNING):
        saved = copies.newest_readable()
    assert saved is not None
    assert saved.folder == copies.path(2)
    assert f"{name} " in caplog.text
    assert "the checkpoint before it is used instead" in caplog.text


@pytest.mark.parametrize("name", FILES)
def test_every_changed_byte_is_found(copies: CheckpointFolder, name: str) -> None:
    file, generator = copies.path(3) / name, np.random.default_rng(5)
    content = file.read_bytes()
    for position in generator.choice(len(content), min(40, len(content)), replace=False):
        changed = bytearray(content)
        changed[position] ^= 1 << int(generator.integers(8))
        file.write_bytes(changed)
        with pytest.raises(DamagedCheckpointError) as caught:
            verified(copies.path(3))
        assert "tensor " in str(caught.value) if name == DATA else f"{name} " in str(caught.value)
    file.write_bytes(content)
    verified(copies.path(3))


def test_nothing_readable(copies: CheckpointFolder, tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "nowhere").newest_readable() is None
    for step in (2, 3):
        (copies.path(step) / INDEX).unlink()
    assert copies.newest_readable() is None
    assert copies.steps() == [2, 3]


def test_values_that_are_damaged_after_they_were_verified_leave_no_variable(copies: CheckpointFolder) -> None:
    saved, file = verified(copies.path(3)), copies.path(3) / DATA
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    program = build()
    with pytest.raises(DamagedCheckpointError, match=r'tensor ".*" cannot be read'):
        restore(saved, [program])
    assert len(program.variables) == 0


def test_a_checkpoint_of_a_later_version_is_not_called_damaged(copies: CheckpointFolder) -> None:
    path = copies.path(3) / MANIFEST
    content = json.loads(path.read_text())["content"]
    content["format"] = 2
    path.write_text(manifest._with_checksum(content))
    with pytest.raises(CheckpointError, match="has format 2; this version of meshtf reads format 1") as caught:
        SavedCheckpoint.open(copies.path(3))
    assert not isinstance(caught.value, DamagedCheckpointError)


def test_reading_by_name(trained: Trained) -> None:
    with pytest.raises(CheckpointError, match='has no tensor "embeding"; did you mean "embedding"'):
        trained.saved.read("embeding")
    values = {name: trained.saved.read(name).numpy() for name in trained.saved.tensors}
    assert_same_bits(values, trained.values)
    assert dict(trained.saved.state) == {"position": [3, 5], "seed": 0}


def test_whole_copies_are_readable(copies: CheckpointFolder, trained: Trained) -> None:
    saved = copies.newest_readable()
    assert saved is not None
    program = build()
    restore(saved, [program])
    assert_same_bits(by_layer(program.variables), trained.values)
