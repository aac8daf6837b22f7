"""Exports a checkpoint to the weights of another library."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint.conversion.converted import ConvertedSource, to_there
from meshtf.checkpoint.conversion.family import Family, find_family, type_of
from meshtf.checkpoint.conversion.huggingface import CONFIGURATION, read_json, write_folder
from meshtf.checkpoint.conversion.images.kept_tensors import WithKept
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.checkpoint.conversion.merged_adapters import MergedAdapters
from meshtf.checkpoint.formats.tensor_source import TensorSource
from meshtf.errors import CheckpointError

SHARD_BYTES = 5 * 10**9
"""The largest size of a file of weights, in bytes. It is Transformers' default."""

FLOATING = {"float32": tf.float32, "float16": tf.float16, "bfloat16": tf.bfloat16}

_REMEDY = """\
Nothing was written. The checkpoint must be of a model with this configuration, and not quantized; with --nostrict,
tensors that no rule takes are left out. An optimizer's state is always left out."""


@dataclasses.dataclass(frozen=True)
class Original:
    """The configuration and files that an export needs beside the weights.

    Attributes:
      configuration: the configuration of the other library.
      where: the file of the configuration.
      rules: a file of rules. None means the file for its `model_type`.
      companions: the folder with its tokenizer, if there is one.
      dtypes: the dtypes of an imported folder's original tensors by name, if they had several dtypes.
      is_imported: whether the configuration is from an imported folder. The import has checked its keys.
    """

    configuration: Mapping[str, Any]
    where: Path
    rules: Path | None = None
    companions: Path | None = None
    dtypes: Mapping[str, tf.DType] = dataclasses.field(default_factory=dict)
    is_imported: bool = False

    @classmethod
    def of(cls, path: Path) -> Original:
        """Reads an imported folder, a folder of the other library, or a `config.json`.

        Raises:
          CheckpointError: the path is none of them.
        """
        imported = ImportedFolder(path)
        if imported.is_there:
            configuration = imported.configuration()
            where = imported.original / CONFIGURATION
            return cls(configuration, where, imported.rules, imported.original, imported.dtypes(), is_imported=True)
        if path.is_dir():
            return cls(read_json(path / CONFIGURATION), path / CONFIGURATION, companions=path)
        return cls(read_json(path), path)


def export_huggingface(
    source: TensorSource,
    original: Original,
    output: Path,
    dtype: tf.DType | None,
    *,
    is_strict: bool,
    ignored_keys: Collection[str] = (),
) -> list[str]:
    """Writes a folder that Transformers can open. Returns the names of its files.

    Args:
      source: a checkpoint of the model. Low-rank adapters are merged into its kernels.
      original: the model's configuration.
      output: the folder.
      dtype: the dtype of floating tensors. By default each keeps its original dtype, or has the configuration's.
      is_strict: whether every tensor of the model must have a rule.
      ignored_keys: keys that may be unknown, in a configuration that was not imported.

    Raises:
      CheckpointError: if the checkpoint is of another model, the configuration has unknown keys, or the output exists
        already.
      SaveError: if the folder cannot be written.
    """
    source, configuration = MergedAdapters(source), dict(original.configuration)
    rules = original.rules
    family = find_family("huggingface", type_of(configuration)) if rules is None else Family.read(rules)
    shapes = {name: tensor.shape for name, tensor in source.tensors.items()}
    model = family.model(configuration, shapes, str(original.where))
    if not original.is_imported:
        family.check_keys(configuration, ignored_keys, str(original.where))
    dtypes = original.dtypes if dtype is None else {}
    dtype = _dtype_of(configuration) if dtype is None else dtype
    weights = ConvertedSource(source, [to_there(rule) for rule in model.rules], model.sizes, dtype, dtypes)
    weights.unused = [name for name in weights.unused if not _is_state(name, source)]
    weights.check(f"the checkpoint, by the rules {family.path.name},", _REMEDY, allows_unused=not is_strict)
    configuration.pop("torch_dtype", None)
    written, folder = {**configuration, "dtype": tf.as_dtype(dtype).name}, original.companions
    return write_folder(WithKept.of(weights, folder), output, written, folder, SHARD_BYTES)


def _dtype_of(configuration: Mapping[str, Any]) -> tf.DType:
    name = str(configuration.get("dtype") or configuration.get("torch_dtype") or "float32")
    if name not in FLOATING:
        raise CheckpointError(
            f"the configuration has dtype {name!r}, which exported weights cannot have; give --dtype, one of "
            f"{', '.join(FLOATING)}"
        )
    return FLOATING[name]


def _is_state(name: str, source: TensorSource) -> bool:
    """Whether a tensor is an optimizer's state for another tensor, or a counter of the run."""
    return name.rpartition("/")[0] in source.tensors or tf.as_dtype(source.tensors[name].dtype).is_integer
