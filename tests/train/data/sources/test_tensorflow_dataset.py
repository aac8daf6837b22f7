"""TensorFlow Datasets by name, with a stand-in for the heavy package; long with itself, where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import TensorflowDataset


class TensorflowDatasets:
    """What is used of the package."""

    def __init__(self, examples: Any) -> None:
        self._examples = examples
        self.asked: dict[str, Any] = {}

    def load(self, name: str, **options: Any) -> tf.data.Dataset:
        if name.split("/")[0] not in self.list_builders():
            raise ValueError(f"Dataset {name} not found.")
        self.asked = {"name": name, **options}
        return tf.data.Dataset.from_tensor_slices(self._examples)

    def as_numpy(self, dataset: tf.data.Dataset) -> Any:
        return dataset.as_numpy_iterator()

    def list_builders(self) -> list[str]:
        return ["lm1b", "wikipedia"]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> TensorflowDatasets:
    stand_in = TensorflowDatasets({"text": [b"one", b" ", b"two"], "label": [1, 2, 3]})
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", stand_in)
    return stand_in


def test_texts_of_a_split(stand_in: TensorflowDatasets) -> None:
    source = TensorflowDataset("wikipedia/simple", split="train[:10%]", data_dir="somewhere")
    assert [(document.name, document.content) for document in source.documents()] == [
        ("wikipedia/simple, train[:10%], example 1", b"one"),
        ("wikipedia/simple, train[:10%], example 3", b"two"),
    ]
    assert stand_in.asked == {
        "name": "wikipedia/simple",
        "split": "train[:10%]",
        "data_dir": "somewhere",
        "shuffle_files": False,
    }


@pytest.mark.usefixtures("stand_in")
def test_an_unknown_name() -> None:
    with pytest.raises(ConfigurationError, match=r'cannot load "wikipdia".*not found.*did you mean "wikipedia"\?'):
        list(TensorflowDataset("wikipdia").documents())


@pytest.mark.usefixtures("stand_in")
def test_a_feature_that_is_no_text_or_is_not_there() -> None:
    with pytest.raises(ConfigurationError, match=r'no feature "txt", only label, text; did you mean "text"\?'):
        list(TensorflowDataset("lm1b", feature="txt").documents())
    with pytest.raises(ConfigurationError, match=r'the feature "label" of "lm1b" holds no text: '):
        list(TensorflowDataset("lm1b", feature="label").documents())


def test_the_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'meshtf\[datasets\]'"):
        list(TensorflowDataset("lm1b").documents())


OWN = """
import sys, tensorflow as tf, tensorflow_datasets as tfds
from meshtf.train.data import TensorflowDataset

class Lines(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"text": tfds.features.Text(), "label": tfds.features.Scalar(tf.int64)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, manager):
        return {"train": ((i, {"text": f"line {i}", "label": i}) for i in range(20))}

    def _generate_examples(self):
        pass

Lines(data_dir=sys.argv[1]).download_and_prepare()
read = lambda *given, **options: list(TensorflowDataset(*given, data_dir=sys.argv[1], **options).documents())
first, second, half = read("lines"), read("lines"), read("lines", "train[:50%]")
assert first == second and first[:10] == [d for d in first if d.content in [h.content for h in half]]
assert sorted(d.content for d in first) == sorted(f"line {i}".encode() for i in range(20))
for wrong in ({"dataset": "linez"}, {"split": "tran"}, {"feature": "label"}, {"feature": "txt"}):
    try:
        read(**{"dataset": "lines", **wrong})
    except ValueError as error:
        print("ERROR", error)
"""


@pytest.mark.long
def test_with_tensorflow_datasets_itself(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow_datasets") is None:
        pytest.skip("tensorflow_datasets is not installed")
    command = [sys.executable, "-c", OWN, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert not done.returncode, done.stderr
    unknown, split, label, feature = done.stdout.split("ERROR ")[1:]
    assert unknown.strip() == (
        'TensorFlow Datasets cannot load "linez" (train): Dataset linez not found.; did you mean "lines"?'
    )
    assert """Unknown split 'tran'. Should be one of ['train'].""" in split
    assert "did you mean" not in split
    assert 'the feature "label" of "lines" holds no text: ' in label
    assert 'no feature "txt", only label, text; did you mean "text"?' in feature
