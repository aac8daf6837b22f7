"""TensorFlow Datasets by name, as documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import gin

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.packages.prepared_dataset import import_tensorflow_datasets, loading
from meshtf.train.data.sources.document import Document


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TensorflowDataset:
    """A text of every example of a data set in TensorFlow Datasets, in the order in which it is stored.

    Attributes:
      dataset: its name, as "wikipedia/20230601.en". It is downloaded if it is missing.
      split: the split as TensorFlow Datasets writes it, "train" or "train[:10%]".
      feature: the name of the feature that is the text.
      data_dir: the folder of data sets. The default is that of TensorFlow Datasets.

    Raises:
      ConfigurationError: when documents are read: if TensorFlow Datasets is not installed, does not know the data set
        or cannot prepare it, or an example has no such text.
    """

    dataset: str
    split: str = "train"
    feature: str = "text"
    data_dir: str | None = None

    def __str__(self) -> str:
        return f"data set {self.dataset}, {self.split}"

    def documents(self) -> Iterator[Document]:
        for number, example in enumerate(self._examples(), start=1):
            document = Document(f"{self.dataset}, {self.split}, example {number}", self._text(example))
            if document.content.strip():
                yield document

    def _examples(self) -> Any:
        tensorflow_datasets = import_tensorflow_datasets("TensorflowDataset")
        with loading(self.dataset, self.split):
            dataset = tensorflow_datasets.load(
                self.dataset, split=self.split, data_dir=self.data_dir, shuffle_files=False
            )
        return tensorflow_datasets.as_numpy(dataset)

    def _text(self, example: Any) -> bytes:
        if not isinstance(example, dict) or self.feature not in example:
            names = sorted(example) if isinstance(example, dict) else []
            raise ConfigurationError(
                f'the examples of "{self.dataset}" have no feature "{self.feature}", only '
                f"{', '.join(names) or 'unnamed ones'}{nearest(self.feature, names)}\n"
                "TensorflowDataset.feature says which feature is the text."
            )
        text = example[self.feature]
        if not isinstance(text, bytes):
            raise ConfigurationError(f'the feature "{self.feature}" of "{self.dataset}" holds no text: {text!r}')
        return text
