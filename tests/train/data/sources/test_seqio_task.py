"""Tasks of seqio by name, with a stand-in for the package, too heavy for most tests; long, where it is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import SeqioTask


class Task:
    """What is used of a task."""

    splits = ("train", "validation")

    def __init__(self) -> None:
        self.asked: tuple[Any, ...] = ()

    def get_dataset(self, *given: Any, **options: Any) -> tf.data.Dataset:
        self.asked = (*given, options)

        def examples() -> Iterator[dict[str, Any]]:
            yield {"inputs": [3, 4], "targets": [5, 1], "inputs_pretokenized": b"ab"}
            yield {"inputs": [], "targets": [], "inputs_pretokenized": b""}
            yield {"inputs": [6], "targets": [7, 1], "inputs_pretokenized": b"c"}

        ids = tf.TensorSpec([None], tf.int32)
        text = tf.TensorSpec([], tf.string)
        return tf.data.Dataset.from_generator(
            examples, output_signature={"inputs": ids, "targets": ids, "inputs_pretokenized": text}
        )


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    task = Task()
    rates = {"summarize": 0.5, "translate.v1": 2.0}
    mixture = SimpleNamespace(
        name="both", tasks=[SimpleNamespace(name=name) for name in rates], get_rate=lambda task: rates[task.name]
    )
    registries = {
        "TaskRegistry": SimpleNamespace(names=lambda: ["translate", "summarize"]),
        "MixtureRegistry": SimpleNamespace(names=lambda: ["both"], get=lambda name: mixture),
    }
    monkeypatch.setitem(sys.modules, "seqio", SimpleNamespace(**registries, get_mixture_or_task=lambda name: task))
    return task


def test_tokens_of_a_split(task: Task) -> None:
    source = SeqioTask("translate", "validation", ("inputs", "targets"), {"inputs": 8, "targets": 8}, seed=3)
    first, second = source.documents()
    assert first.name == "seqio's translate, validation, example 1"
    assert second.name == "seqio's translate, validation, example 3"
    assert first.ids is not None
    assert [part.tolist() for part in first.ids] == [[3, 4], [5, 1]]
    assert first.content != second.content
    options = {"use_cached": False, "shuffle": False, "seed": 3, "num_epochs": 1}
    assert task.asked == ({"inputs": 8, "targets": 8}, "validation", options)


@pytest.mark.usefixtures("task")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (SeqioTask("tranlate"), 'seqio has no task "tranlate"; did you mean "translate"?'),
        (
            SeqioTask("both"),
            """\
    Training.task = @Mixture()
    Mixture.tasks = [@summarize/TextTask(), @translate_v1/TextTask()]
    Mixture.names = ['summarize', 'translate.v1']
    Mixture.rates = [0.5, 2.0]
    summarize/TextTask.source = @summarize/SeqioTask()
    summarize/SeqioTask.task = 'summarize'
    translate_v1/TextTask.source = @translate_v1/SeqioTask()
    translate_v1/SeqioTask.task = 'translate.v1'""",
        ),
        (SeqioTask("translate", "test"), "has the splits train, validation, and SeqioTask.split is 'test'"),
        (SeqioTask("translate", features="target"), 'example 1 has no feature "target", only inputs, inputs_pret'),
        (
            SeqioTask("translate", features="inputs_pretokenized"),
            'the feature "inputs_pretokenized" holds no row of ids',
        ),
    ],
)
def test_what_is_not_there_is_named(source: SeqioTask, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        list(source.documents())
    assert words in str(caught.value)


def test_without_seqio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "seqio", None)
    with pytest.raises(ConfigurationError, match=r"not installed.\nInstall it .* pip install 'meshtf\[seqio\]'"):
        list(SeqioTask("translate").documents())


OWN = """
import functools, numpy as np, seqio, tensorflow as tf
from meshtf.train.data import SeqioTask

texts = {"train": ["abc", "d"], "validation": ["e"]}
def read(split, shuffle_files, seed=None):
    return tf.data.Dataset.from_tensor_slices({"targets": texts[split]})
seqio.TaskRegistry.add(
    "bytes",
    source=seqio.FunctionDataSource(dataset_fn=read, splits=list(texts)),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={"targets": seqio.Feature(seqio.ByteVocabulary())},
)
seqio.MixtureRegistry.add("mixed", [("bytes", 1)])
print([[part.tolist() for part in document.ids] for document in SeqioTask("bytes").documents()])
try:
    list(SeqioTask("mixed").documents())
except ValueError as error:
    print(error)
"""


@pytest.mark.long
def test_with_seqio_itself() -> None:
    if importlib.util.find_spec("seqio") is None:
        pytest.skip("seqio is not installed")
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, timeout=1500, check=False)
    assert not done.returncode, done.stderr
    assert "[[[100, 101, 102, 1]], [[103, 1]]]" in done.stdout
    assert '"mixed" is a mixture' in done.stdout
    assert "Mixture.rates = [1.0]" in done.stdout
