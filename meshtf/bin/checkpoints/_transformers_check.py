"""Checks an import (`--check`): compares the logits of a few tokens or images with those of Transformers."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint.conversion.huggingface import CONFIGURATION, read_json
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.checkpoint.reading.restoring import restore
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, counted
from meshtf.train.model_forms import image_batch, image_shape_of, model_of

_ROWS, _LENGTH = 2, 12
_TOLERANCE = 1e-3
"""The largest allowed difference, as a share of the largest logit. Float32 differs between two libraries by 1e-6 to
1e-4, depending on the depth. Another model differs by more than 1e-2."""

_MISSING = """\
--check compares with Transformers, and the package {package} is not installed. \
Install both with the project's extra: pip install 'meshtf[test-transformers]'. Nothing was written."""
_NO_CLASS = """\
{where} has no architectures, so --check does not know which of Transformers' models to compare with; write the name \
of its class there, or leave out --check. The model was imported, but not compared."""
_OTHER = """\
the logits of {path} differ from Transformers' by {error:.2g}, where the largest is {largest:.3g}: the imported \
model computes something else. {output} was written nevertheless; do not use it, and report {path}/config.json"""


def check_installed() -> None:
    """Raises CheckpointError if Transformers is not installed."""
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise CheckpointError(_MISSING.format(package=package))


def compare_logits(source: Path, imported: ImportedFolder) -> str:
    """Compares the logits of 2 x 12 tokens, or of 2 images, in float32. Returns a sentence on the result.

    Tokens and images are drawn with a fixed seed.

    Raises:
      CheckpointError: if they differ.
    """
    model = model_of(imported.model_gin)
    if (image_shape := image_shape_of(model)) is not None:
        images = np.random.RandomState(0).standard_normal(image_batch(_ROWS, image_shape).to_integer_list)
        theirs = _called(source, {"pixel_values": np.moveaxis(images.astype(np.float32), -1, 1)})
        ours = _of_meshtf_on_images(model, images.astype(np.float32), imported)
        return _compared(ours, theirs, counted(_ROWS, "image"), source, imported)
    configuration = read_json(source / CONFIGURATION)
    sizes = [configuration["vocab_size"], configuration.get("decoder_vocab_size") or configuration["vocab_size"]]
    unpadded = np.setdiff1d(np.arange(min(sizes)), getattr(model, "padding_id", -1))
    ids = np.random.RandomState(0).choice(unpadded, [_ROWS, _LENGTH]).astype(np.int32)
    theirs, features = _of_transformers(source, ids, model)
    ours = _of_meshtf(model, features, imported)[..., : theirs.shape[-1]]
    if not getattr(model, "starts_prompts", True):  # each target's logits are those of the token before it
        ours, theirs = ours[:, 1:], theirs[:, :-1]
    return _compared(ours, theirs, counted(ids.size, "token"), source, imported)


def _compared(ours: np.ndarray, theirs: np.ndarray, what: str, source: Path, imported: ImportedFolder) -> str:
    """The sentence on the result. Raises CheckpointError if the logits differ."""
    error, largest = float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())
    if not error <= _TOLERANCE * largest:
        raise CheckpointError(_OTHER.format(path=source, error=error, largest=largest, output=imported.path))
    return f"checked:    logits of {what} are those of Transformers to {error / largest:.1g} of the largest"


def _called(path: Path, fed: Mapping[str, np.ndarray]) -> np.ndarray:
    """The logits of Transformers' model of images."""
    torch, model = _opened(path)
    with torch.no_grad():
        return model(**{name: torch.tensor(value) for name, value in fed.items()}).logits.numpy()


def _opened(path: Path) -> tuple[Any, Any]:
    """PyTorch, and Transformers' model in float32."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    names = read_json(path / CONFIGURATION).get("architectures")
    if not names:
        raise CheckpointError(_NO_CLASS.format(where=path / CONFIGURATION))
    kind = getattr(transformers, names[0])
    return torch, kind.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


def _of_transformers(path: Path, ids: np.ndarray, own: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns Transformers' logits, [2, 12, vocab] or [2, classes], and the same inputs as features of meshtf."""
    torch, model = _opened(path)
    fed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    features = {"inputs": ids}
    start_id = getattr(own, "start_id", None)
    if start_id is not None:
        begun = np.concatenate([np.full_like(ids[:, :1], start_id), ids[:, :-1]], axis=1)
        begun = begun if getattr(own, "starts_prompts", True) else ids
        features["targets"] = ids
        if model.config.is_encoder_decoder:
            fed["decoder_input_ids"] = begun
        else:
            fed["input_ids"] = begun
            del features["inputs"]
    with torch.no_grad():
        logits = model(**{name: torch.tensor(value) for name, value in fed.items()}).logits
    return logits.numpy(), features


def _of_meshtf(model: Any, features: Mapping[str, np.ndarray], imported: ImportedFolder) -> np.ndarray:
    def logits(inputs: mtf.Tensor | None = None, targets: mtf.Tensor | None = None) -> mtf.Tensor:
        given = {"inputs": inputs, "targets": targets}
        return model.logits({name: value for name, value in given.items() if value is not None}, False)

    specs = {name: mtf.TensorSpec(f"batch:{_ROWS} length:{_LENGTH}", tf.int32) for name in features}
    step = mtf.function(logits, mtf.SpmdMeshImpl("all:1", ""), inputs=specs)
    restore(SavedCheckpoint.open(imported.checkpoint), [step])
    return step(**features).numpy()


def _of_meshtf_on_images(model: Any, images: np.ndarray, imported: ImportedFolder) -> np.ndarray:
    def logits(images: mtf.Tensor) -> mtf.Tensor:
        return model.logits(images, False)

    specs = {"images": mtf.TensorSpec(image_batch(_ROWS, images.shape[1:]))}
    step = mtf.function(logits, mtf.SpmdMeshImpl("all:1", ""), inputs=specs)
    restore(SavedCheckpoint.open(imported.checkpoint), [step])
    return step(images=images).numpy()
