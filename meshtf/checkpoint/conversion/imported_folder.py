"""The folder that import makes: a checkpoint, the model as a gin file, and the files that an export needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint.conversion.family_parts import copy_rules
from meshtf.checkpoint.conversion.huggingface import CONFIGURATION, copy_companions, read_json
from meshtf.errors import SaveError
from meshtf_programs.strict_json import json_text

MODEL_GIN, ORIGINAL, RULES, DTYPES = "model.gin", "original", "rules.toml", "dtypes.json"
ALONE_GIN = "operative_config.gin"
"""The name of a run's configuration. With it, programs accept the folder as a run."""


@dataclasses.dataclass(frozen=True)
class ImportedFolder:
    """The folder of an import.

    Attributes:
      path: the path of the folder.
    """

    path: Path

    @property
    def checkpoint(self) -> Path:
        """The weights."""
        return self.path / "checkpoints" / "step_00000000"

    @property
    def model_gin(self) -> Path:
        """The model, for --gin_file."""
        return self.path / MODEL_GIN

    @property
    def alone_gin(self) -> Path:
        """The gin file for using the model without training it, for --model_dir."""
        return self.path / ALONE_GIN

    @property
    def original(self) -> Path:
        """The folder with the original configuration and tokenizer, and the rules of the import."""
        return self.path / ORIGINAL

    @property
    def rules(self) -> Path:
        return self.original / RULES

    @property
    def is_there(self) -> bool:
        return (self.original / CONFIGURATION).is_file() and self.rules.is_file()

    def configuration(self) -> dict[str, Any]:
        """The other library's configuration. Raises CheckpointError if it is missing."""
        return read_json(self.original / CONFIGURATION)

    def dtypes(self) -> dict[str, tf.DType]:
        """The dtypes of the original tensors by name, if they had several dtypes."""
        path = self.original / DTYPES
        return {name: tf.as_dtype(dtype) for name, dtype in read_json(path).items()} if path.exists() else {}

    def keep_dtypes(self, dtypes: Mapping[str, tf.DType]) -> None:
        """Writes the file of dtypes, unless there are none."""
        if dtypes:
            text = json_text({name: dtype.name for name, dtype in dtypes.items()}, indent=2, sort_keys=True)
            (self.original / DTYPES).write_text(f"{text}\n", "utf-8")

    def keep_original(self, configuration: Mapping[str, Any] | None, rules: Path, source: Path) -> list[str]:
        """Copies the rules and the tokenizer, and writes the configuration if an export can use it.

        Returns the names of the tokenizer's files.
        """
        try:
            self.original.mkdir(parents=True)
            if configuration is not None:
                text = json_text(dict(configuration), indent=2, sort_keys=True) + "\n"
                (self.original / CONFIGURATION).write_text(text, "utf-8")
            copy_rules(rules, self.rules)
            return copy_companions(source, self.original)
        except OSError as error:
            raise SaveError(f"{self.original} cannot be written: {error.strerror or error}") from error
