"""Folders of models as Hugging Face's Transformers writes them: `config.json`, and one or more safetensors files."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._atomic_file import atomic_file
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.atomic_folder import atomic_folder
from meshtf.checkpoint.formats.safetensors_file import SafetensorsFile, write_safetensors
from meshtf.checkpoint.formats.tensor_source import Part, TensorSource
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError, SaveError
from meshtf.files.regular_file import read_regular
from meshtf_programs.strict_json import json_text

CONFIGURATION = "config.json"
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_LARGEST_JSON = 64 << 20
_LARGEST_COMPANION = 1 << 30

_COMPANIONS = (
    "chat_template.jinja",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "source.spm",
    "target.spm",
    "target_vocab.json",
    "tekken.json",
    "preprocessor_config.json",
)
"""The files beside a model's weights that are copied unchanged."""

_NO_WEIGHTS = """\
{folder} has no weights in the format safetensors: neither {whole} nor {index}.{pickled}"""

_NO_SHARD = """\
{folder} lacks {name}, one of the {count} files of its weights; copy it from where the others came from"""

_IN_TWO_SHARDS = """\
{first} and {second} both have {tensor}; remove the file that does not belong to the model, or download all again"""

_PICKLED = """
It has {name}, a PyTorch file. Reading such a file can run its author's code, so meshtf does not. Where torch
is installed, transformers writes the same weights as safetensors:
    AutoModel.from_pretrained("{folder}").save_pretrained("{folder}", safe_serialization=True)"""


@dataclasses.dataclass(frozen=True)
class HuggingFaceFolder:
    """A `TensorSource` of all shards of a model.

    Attributes:
      path: the path of the folder.
      configuration: the content of `config.json`.
      files: the file that has each tensor.
      tensors: their shapes and dtypes.
    """

    path: Path
    configuration: Mapping[str, Any]
    files: Mapping[str, SafetensorsFile]
    tensors: Mapping[str, SavedTensor]

    @classmethod
    def open(cls, path: Path) -> HuggingFaceFolder:
        """Opens a folder.

        Raises:
          CheckpointError: if it is no such folder, or a shard is missing, damaged, or lacks a tensor of the index.
        """
        configuration = read_json(path / CONFIGURATION)
        if (path / _WHOLE).is_file():  # wins over an index, as in Transformers
            file = SafetensorsFile.open(path / _WHOLE)
            return cls(path, configuration, dict.fromkeys(file.tensors, file), file.tensors)
        if not (path / _INDEX).is_file():
            raise CheckpointError(_no_weights(path))
        files = _sharded(path)
        return cls(path, configuration, files, {name: file.tensors[name] for name, file in files.items()})

    @property
    def step(self) -> int:
        return 0

    @property
    def state(self) -> Mapping[str, Any]:
        return {}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it."""
        return self.files[name].read(name, box)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON. Raises CheckpointError if there is none."""
    try:
        content = json.loads(read_regular(path, _LARGEST_JSON))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must have a JSON object, not {type(content).__name__}")
    return content


def copy_companions(source: Path, target: Path) -> list[str]:
    """Copies the tokenizer and the other files beside the weights. Returns the names of the files."""
    copied = []
    for name in _COMPANIONS:
        try:
            content = read_regular(source / name, _LARGEST_COMPANION)
        except OSError:
            continue
        (target / name).write_bytes(content)
        copied.append(name)
    return copied


def write_folder(
    source: TensorSource, folder: Path, configuration: Mapping[str, Any], companions: Path | None, shard_bytes: int
) -> list[str]:
    """Writes weights, configuration and companion files of a model into a new folder.

    Args:
      source: the tensors, which are written part by part.
      folder: the folder to be made.
      configuration: the content of `config.json`.
      companions: the folder that has the tokenizer, if there is one.
      shard_bytes: the largest size of a file of weights. Each file holds at least one tensor, however large.

    Returns:
      The names of its files.

    Raises:
      CheckpointError: if the folder exists already.
      SaveError: if it cannot be written. Then no folder is left.
    """
    if folder.exists():
        raise CheckpointError(f"{folder} already exists; give another output, or remove it first")
    try:
        with atomic_folder(folder) as temporary:
            _write_weights(source, temporary, shard_bytes)
            text = json_text(dict(configuration), indent=2, sort_keys=True) + "\n"
            (temporary / CONFIGURATION).write_text(text, "utf-8")
            if companions is not None:
                copy_companions(companions, temporary)
            names = sorted(path.name for path in temporary.iterdir())
    except SaveError as error:
        raise SaveError(str(error).replace(f"/.writing-{folder.name}", f"/{folder.name}")) from None
    except (OSError, shutil.Error) as error:
        raise SaveError(f"{folder} cannot be written: {getattr(error, 'strerror', None) or error}") from error
    return names


def _write_weights(source: TensorSource, folder: Path, shard_bytes: int) -> None:
    shards = _shards(source, shard_bytes)
    if len(shards) == 1:
        write_safetensors(Part(source, shards[0]), folder / _WHOLE, metadata={"format": "pt"})
        return
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    for name, tensors in zip(names, shards, strict=True):
        write_safetensors(Part(source, tensors), folder / name, metadata={"format": "pt"})
    weight_map = {tensor: name for name, tensors in zip(names, shards, strict=True) for tensor in tensors}
    total = sum(tensor.num_bytes for tensor in source.tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    with atomic_file(folder / _INDEX) as file:
        file.write(json_text(index, indent=2, sort_keys=True).encode() + b"\n")


def _shards(source: TensorSource, shard_bytes: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    held = 0
    for name, tensor in source.tensors.items():
        if shards[-1] and held + tensor.num_bytes > shard_bytes:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += tensor.num_bytes
    return shards


def _sharded(path: Path) -> dict[str, SafetensorsFile]:
    """The file of each tensor, after checking that the files agree with the index.

    The index says which files there are. All of their tensors count, as in Transformers, also those that it lacks.
    """
    weight_map = read_json(path / _INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointError(f"{path / _INDEX} has no weight_map from tensors to files; download it again")
    shards: dict[str, SafetensorsFile] = {}
    for name in sorted(set(weight_map.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{path / _INDEX} names {name!r}, which is not a safetensors file in the same folder")
        if not (path / name).exists():
            raise CheckpointError(_NO_SHARD.format(folder=path, name=name, count=len({*weight_map.values()})))
        shards[name] = SafetensorsFile.open(path / name)
    for tensor, name in weight_map.items():
        if tensor not in shards[name].tensors:
            raise CheckpointError(
                f"{path / _INDEX} says that {name} has {tensor}, but it does not; download both again"
            )
    files: dict[str, SafetensorsFile] = {}
    for file in shards.values():
        for tensor in file.tensors:
            if tensor in files:
                raise CheckpointError(_IN_TWO_SHARDS.format(tensor=tensor, first=files[tensor].path, second=file.path))
            files[tensor] = file
    return files


def _no_weights(path: Path) -> str:
    pickled = next((p.name for p in sorted(path.glob("*.bin")) if p.name.startswith("pytorch_model")), None)
    told = "" if pickled is None else _PICKLED.format(name=pickled, folder=path)
    return _NO_WEIGHTS.format(folder=path, whole=_WHOLE, index=_INDEX, pickled=told)
