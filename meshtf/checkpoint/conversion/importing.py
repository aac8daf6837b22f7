"""Imports another library's weights as a checkpoint and the model's gin file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.atomic_folder import atomic_folder
from meshtf.checkpoint.conversion.converted import ConvertedSource, listed, to_here
from meshtf.checkpoint.conversion.family import Family, FamilyModel, find_family, type_of
from meshtf.checkpoint.conversion.huggingface import CONFIGURATION, HuggingFaceFolder, read_json
from meshtf.checkpoint.conversion.images.kept_tensors import keep_tensors
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.checkpoint.conversion.in_use.gin_text import GinText
from meshtf.checkpoint.conversion.mxfp4 import without_blocks
from meshtf.checkpoint.conversion.operative_config import read_gin
from meshtf.checkpoint.conversion.optimizer_slots import FactoredSides, OptimizerSlots, WithSlots
from meshtf.checkpoint.conversion.tensorflow_checkpoint import TensorFlowCheckpoint
from meshtf.checkpoint.conversion.tied_tensors import WithoutCopies
from meshtf.checkpoint.formats.tensor_source import OfAnother, TensorSource, write_source
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError, MeshtfError, SaveError

OPERATIVE_CONFIG, BERT_CONFIG = "operative_config.gin", "bert_config.json"
"""The configuration beside a checkpoint of Mesh TensorFlow, and beside one of Google's BERT."""

_TWICE = """\
the weights have {canonical} twice, as {first} and as {second}; remove the one that does not belong to the model"""

_PRECISION = {tf.float16: (10, 16), tf.bfloat16: (7, 128), tf.float32: (23, 128), tf.float64: (52, 1024)}
"""The number of fraction bits of each dtype, and its largest exponent of 2."""

ModelForms = Callable[[Path], Mapping[str, SavedTensor]]
"""Returns the shape and type of each tensor in a checkpoint of the model that a gin file describes."""

SidesOf = Callable[[Path], FactoredSides]
"""Returns the two sides of each weight over which Adafactor takes means, for the model that a gin file describes."""

_REMEDY = """\
Nothing was written. All weights must belong to one model of this family, with its own configuration; with --nostrict,
tensors that no rule takes are left out."""

_NO_MODEL = """\
no model can be built from the gin file {gin} that the rules {rules} make:
{error}{line}
Nothing was written. Change the rules, or the configuration that they read."""

_OTHER_MODEL = """\
the rules {rules} and the model of their gin file do not fit:
{lines}
Nothing was written. A model with other variables needs other rules."""


@dataclasses.dataclass(frozen=True)
class Written:
    """The parts that an import wrote beside the model and the weights.

    Attributes:
      tokenizer: the names of the tokenizer's files.
      slots: the optimizer's state, if it was requested.
      unmatched: settings of generation that have no counterpart in meshtf.
    """

    tokenizer: tuple[str, ...]
    slots: OptimizerSlots | None
    unmatched: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Import:
    """An import that is ready to be written. The weights have been checked against the rules and sizes.

    Attributes:
      path: the folder of the source.
      configuration: the configuration for Transformers. None if the model cannot be exported.
      model: the model of a family.
      source: all tensors of the source, under their own names.
      weights: the weights in meshtf's form.
      export_rules: the rules for an export.
    """

    path: Path
    configuration: Mapping[str, Any] | None
    model: FamilyModel
    source: TensorSource
    weights: ConvertedSource
    export_rules: Path

    @classmethod
    def of_huggingface(
        cls, path: Path, rules: Path | None, dtype: tf.DType, *, is_strict: bool, ignored_keys: Sequence[str] = ()
    ) -> Import:
        """Reads a folder of Transformers.

        Args:
          path: the path of the folder.
          rules: a file of rules; by default the one for the configuration's `model_type`.
          dtype: the dtype of floating variables.
          is_strict: whether every tensor must have a rule.
          ignored_keys: keys of the configuration that may be unknown to the rules.

        Raises:
          CheckpointError: if there is no such folder or family, the configuration has unknown keys, or the weights do
            not fit.
        """
        folder, where = HuggingFaceFolder.open(path), str(path / CONFIGURATION)
        said, source = without_blocks(folder.configuration, folder)
        configuration = _with_dtype(said, source)
        family = _family("huggingface", type_of(configuration), rules, where)
        single = source
        if family.tied and family.is_tied(configuration, where):
            single = WithoutCopies.of(source, family.tied, family.prefix)
        model = family.model(configuration, _shapes(single), where)
        family.check_keys(configuration, ignored_keys, where)
        weights = _checked(path, single, model, dtype, is_strict=is_strict)
        return cls(path, configuration, model, single, weights, family.path)

    @classmethod
    def of_mesh_tensorflow(cls, path: Path, rules: Path | None, dtype: tf.DType, *, is_strict: bool) -> Import:
        """Reads a checkpoint of Mesh TensorFlow: its prefix, or the folder that has it. See `of_huggingface`."""
        source = TensorFlowCheckpoint.open(path)
        where = source.prefix.with_name(OPERATIVE_CONFIG)
        configuration = read_gin(where)
        family = _family("mesh_tensorflow", configuration.get("run.model_type"), rules, str(where))
        model = family.model(configuration, _shapes(source), str(where))
        weights = _checked(path, source, model, dtype, is_strict=is_strict)
        return cls(source.prefix.parent, None, model, source, weights, family.path)

    @classmethod
    def of_google_bert(cls, path: Path, rules: Path | None, dtype: tf.DType, *, is_strict: bool) -> Import:
        """Reads a checkpoint of Google's BERT: its prefix, or the folder that has it. See `of_huggingface`."""
        source = TensorFlowCheckpoint.open(path)
        where = source.prefix.with_name(BERT_CONFIG)
        family = _family("google_bert", "bert", rules, str(where))
        configuration = read_json(where)
        model = family.model(configuration, _shapes(source), str(where))
        weights = _checked(path, source, model, dtype, is_strict=is_strict)
        written = _bert_of_transformers(configuration, model)
        export_rules = find_family("huggingface", "bert").path
        return cls(source.prefix.parent, written, model, source, weights, export_rules)

    @property
    def left_out(self) -> list[str]:
        """Tensors of the source that no rule reads."""
        return self.weights.unused

    def write(self, output: Path, forms_of: ModelForms | None = None, sides_of: SidesOf | None = None) -> Written:
        """Writes the folder, whole or not at all.

        Args:
          output: the folder.
          forms_of: returns the shapes and types that the variables must have. Without it they are not checked.
          sides_of: returns the sides for the optimizer's state. Without it the state is left out.

        Raises:
          CheckpointError: if the folder exists already, the rules and the model have different variables, or the
            optimizer's state does not fit.
          SaveError: if the folder cannot be written.
        """
        if output.exists():
            raise CheckpointError(f"{output} already exists; give another output, or remove it first")
        try:
            with atomic_folder(output) as temporary:
                folder = ImportedFolder(temporary)
                copied = folder.keep_original(self.configuration, self.export_rules, self.path)
                folder.keep_dtypes(self._other_dtypes)
                keep_tensors(self.source, self._kept, folder.original)
                unmatched = self._write_gin(folder)
                if forms_of is not None:
                    self._check_forms(self._forms(forms_of, folder.model_gin))
                slots = None if sides_of is None else self._slots(sides_of(folder.model_gin))
                write_source(self.weights if slots is None else WithSlots(self.weights, slots), folder.checkpoint)
        except SaveError as error:
            raise SaveError(str(error).replace(f".writing-{output.name}", output.name)) from None
        except OSError as error:
            raise SaveError(f"{output} cannot be written: {error.strerror or error}") from error
        return Written(tuple(copied), slots, unmatched)

    def _write_gin(self, folder: ImportedFolder) -> tuple[str, ...]:
        """Writes both gin files. Returns the settings of generation that have no counterpart."""
        text = GinText(self.model.gin, folder.original, self.configuration or {}, self.model.settings)
        folder.model_gin.write_text(f"# {self._title}\n{text.model_gin}", "utf-8")
        if text.alone_gin is not None:
            folder.alone_gin.write_text(text.alone_gin, "utf-8")
        return () if text.generation is None else text.generation.unmatched

    @property
    def _other_dtypes(self) -> dict[str, tf.DType]:
        """The dtypes of the source's floating tensors, if they have several dtypes."""
        family, known = self.model.family, self.model.names_there
        found = {name: tensor.dtype for name, tensor in self.source.tensors.items() if tensor.dtype.is_floating}
        if len(set(found.values())) < 2:
            return {}
        return {family.todays_name(name, known): dtype for name, dtype in found.items()}

    @property
    def _kept(self) -> list[str]:
        """The source's tensors that meshtf does not need, but that an export writes again."""
        return [name for name in self.source.tensors if any(p.matches(name) for p in self.model.family.kept)]

    def rounded_to(self, dtype: tf.DType) -> list[str]:
        """The dtypes of the source that have numbers which `dtype` cannot hold exactly."""
        found = {tensor.dtype for tensor in self.source.tensors.values() if tensor.dtype.is_floating}
        digits, exponent = _PRECISION[dtype]
        wide = {d: _PRECISION[d] for d in found if d in _PRECISION}  # any other has eight bits, which all dtypes hold
        return sorted(d.name for d, (own_digits, own) in wide.items() if own_digits > digits or own > exponent)

    def _slots(self, factored: FactoredSides) -> OptimizerSlots:
        return OptimizerSlots.of(str(self.path), self.source, self.model.rules, self.model.sizes, factored)

    def _forms(self, forms_of: ModelForms, model_gin: Path) -> Mapping[str, SavedTensor]:
        """The shapes and types of the model's tensors. An error shows the line of the gin file, which is deleted."""
        try:
            return forms_of(model_gin)
        except MeshtfError as error:
            folder = re.escape(model_gin.parent.name)
            told = re.sub(rf"\S*{folder}/{model_gin.name}", model_gin.name, str(error))
            line = re.search(rf"{re.escape(model_gin.name)}:(\d+)", told)
            lines = model_gin.read_text("utf-8").splitlines()
            shown = f"\n    {lines[int(line[1]) - 1]}" if line and int(line[1]) <= len(lines) else ""
            raise CheckpointError(
                _NO_MODEL.format(rules=self.model.family.path.name, gin=model_gin.name, error=told, line=shown)
            ) from None

    @property
    def _title(self) -> str:
        """The title of the gin file. It is one line, whatever characters the folder's name has."""
        return f"The model of {self.path.resolve().name!r}, imported by the rules {self.model.family.path.name!r}."

    def _check_forms(self, wanted: Mapping[str, SavedTensor]) -> None:
        """Raises CheckpointError unless the model has these variables and no others, and both floats or no floats."""
        made = self.weights.tensors
        other = [
            f"{name} is {list(tensor.shape)} by the rules, and {list(wanted[name].shape)} in the model"
            for name, tensor in made.items()
            if name in wanted and wanted[name].shape != tensor.shape
        ]
        kinds = [
            f"{name} is {tensor.dtype.name} in the weights, and {wanted[name].dtype.name} in the model"
            for name, tensor in made.items()
            if name in wanted and wanted[name].dtype.is_floating != tensor.dtype.is_floating
        ]
        lines = [
            *listed("made by no rule", [name for name in wanted if name not in made]),
            *listed("not in the model", [name for name in made if name not in wanted]),
            *listed("of another shape", other),
            *listed("of another kind of numbers", kinds),
        ]
        if lines:
            raise CheckpointError(_OTHER_MODEL.format(rules=self.model.family.path.name, lines="\n".join(lines)))


@dataclasses.dataclass(frozen=True)
class _Canonical(OfAnother):
    """A source whose tensors have their names from the rules, without ignored tensors."""

    names: Mapping[str, str]
    tensors: Mapping[str, SavedTensor]

    @classmethod
    def of(cls, source: TensorSource, model: FamilyModel) -> _Canonical:
        family, known = model.family, model.names_there
        found: dict[str, str] = {}
        for name in source.tensors:
            canonical = family.todays_name(name, known)
            if canonical in found:
                raise CheckpointError(_TWICE.format(canonical=canonical, first=found[canonical], second=name))
            if canonical in known or not family.is_ignored(canonical):
                found[canonical] = name
        tensors = source.tensors
        return cls(source, found, {name: tensors[own] for name, own in found.items()})

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        return self.source.read(self.names[name], box)


def _shapes(source: TensorSource) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in source.tensors.items()}


def _checked(
    path: Path, source: TensorSource, model: FamilyModel, dtype: tf.DType, *, is_strict: bool
) -> ConvertedSource:
    rules = [to_here(rule) for rule in model.rules]
    weights = ConvertedSource(_Canonical.of(source, model), rules, model.sizes, dtype)
    weights.check(f"{path}, by the rules {model.family.path.name},", _REMEDY, allows_unused=not is_strict)
    return weights


def _family(format_name: str, model_type: object, rules: Path | None, where: str) -> Family:
    if rules is None:
        return find_family(format_name, str(model_type))
    family = Family.read(rules)
    if family.format != format_name:
        raise CheckpointError(f"the rules {rules} are for --format={family.format}, and the source is {format_name}")
    if family.model_types and model_type not in family.model_types:
        raise CheckpointError(
            f"{where} has the model type {model_type!r}, and the rules {rules} are for {', '.join(family.model_types)}"
        )
    return family


def _bert_of_transformers(configuration: Mapping[str, Any], model: FamilyModel) -> dict[str, Any]:
    """Transformers' `config.json` of the same model."""
    written = {**configuration, "model_type": "bert", "dtype": "float32", "layer_norm_eps": model.settings["epsilon"]}
    if not model.settings["is_classifier"]:
        return {**written, "architectures": ["BertForMaskedLM"]}
    labels = {str(number): f"LABEL_{number}" for number in range(model.sizes.axes["classes"])}
    return {**written, "architectures": ["BertForSequenceClassification"], "id2label": labels}


def _with_dtype(configuration: Mapping[str, Any], source: TensorSource) -> dict[str, Any]:
    """The configuration, with the dtype of the weights as `dtype` if all have the same."""
    dtypes = {tensor.dtype for tensor in source.tensors.values() if tensor.dtype.is_floating}
    own = {key: value for key, value in configuration.items() if key != "torch_dtype" or len(dtypes) > 1}
    return {**own, "dtype": dtypes.pop().name} if len(dtypes) == 1 else own
