"""Text for the tests of the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import gin
import numpy as np
import pytest

from meshtf.train.data import train_sentencepiece
from meshtf.train.data.sources.document import Document


@dataclasses.dataclass(frozen=True)
class Texts:
    """A source of given texts, named by their number."""

    contents: tuple[bytes, ...]

    def documents(self) -> Iterator[Document]:
        for number, content in enumerate(self.contents):
            yield Document(f"text {number}", content)


@pytest.fixture(scope="session")
def texts() -> type[Texts]:
    return Texts


@pytest.fixture(scope="session")
def many_texts() -> Texts:
    """80 documents of 1 to 60 bytes, all different."""
    random = np.random.default_rng(0)
    lengths = random.integers(0, 58, 80)
    return Texts(
        tuple(b"%02d" % i + bytes(random.integers(97, 123, n).astype(np.uint8)) for i, n in enumerate(lengths))
    )


@pytest.fixture(scope="session")
def sentencepiece_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 500 ids, trained on a module of the Python library."""
    path = tmp_path_factory.mktemp("vocabulary") / "small.model"
    train_sentencepiece(Texts((Path(dataclasses.__file__).read_bytes(),)), path, size=500)
    return path


@pytest.fixture(autouse=True)
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()
