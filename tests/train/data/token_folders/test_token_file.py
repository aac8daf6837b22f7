from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.token_folders.token_file import TokenFile


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_slices(tmp_path: Path, dtype: type) -> None:
    ids = np.arange(100, dtype=dtype)
    ids.tofile(tmp_path / "ids")
    tokens = TokenFile(tmp_path / "ids", np.dtype(dtype), 100, limit=100)
    assert len(tokens) == 100
    assert (tokens[3:40] == ids[3:40]).all()
    assert tokens[3:40].dtype == dtype
    assert len(tokens[7:7]) == 0


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "ids")
    tokens = TokenFile(tmp_path / "ids", np.dtype(np.uint16), 100, limit=100)
    assert tokens[98:100].tolist() == [98, 99]
    (tmp_path / "ids").write_bytes(b"\0" * 100)
    with pytest.raises(ConfigurationError, match=r"ids are damaged: the file is cut short\.\nmeshtf-tokenize --verify"):
        tokens[98:100]


def test_ids_that_there_are_not(tmp_path: Path) -> None:
    np.array([1, 2, 50, -1], np.int32).tofile(tmp_path / "ids")
    tokens = TokenFile(tmp_path / "ids", np.dtype(np.int32), 4, limit=50)
    for place in (slice(1, 3), slice(3, 4)):
        with pytest.raises(ConfigurationError, match=r"is outside the vocabulary of 50"):
            tokens[place]
