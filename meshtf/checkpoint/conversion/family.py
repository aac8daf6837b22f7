"""A family of models: a file of rules that map another library's tensors to meshtf's.

Users can write such files as well.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.axes import RuleFault
from meshtf.checkpoint.conversion.configuration_form import ConfigurationForm
from meshtf.checkpoint.conversion.converted import Sizes
from meshtf.checkpoint.conversion.decoders.layer_plan import LayerPlan
from meshtf.checkpoint.conversion.decoders.layers import Layers
from meshtf.checkpoint.conversion.family_parts import read_rules
from meshtf.checkpoint.conversion.names import NamePattern
from meshtf.checkpoint.conversion.rule import TensorRule, placed, rules_of
from meshtf.checkpoint.conversion.settings import Setting, Shapes, Value, alternatives, evaluated, holds, keys_of
from meshtf.errors import CheckpointError, counted, nearest

_KEYS = (
    "format",
    "model_types",
    "prefix",
    "old_endings",
    "settings",
    "required",
    "needs",
    "axes",
    "labels",
    "tensors",
    "ignored",
    "kept",
    "gin",
    "configuration",
    "tied",
    "layers",
)
_MOST_TENSORS = 100_000
_NO_SIZE = """\
the configuration {where} gives {what} = {value!r}, which is not a size; the file was probably edited, or belongs \
to another family"""


@dataclasses.dataclass(frozen=True)
class GinPart:
    """A part of the model's gin file, written if its conditions hold. `{name}` in it stands for a setting."""

    text: str
    when: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Family:
    """The content of a file of rules.

    Attributes:
      path: the path of the file.
      format: the format of the other library: "huggingface", "mesh_tensorflow" or "google_bert".
      model_types: the names of this family's models in configurations.
      prefix: a prefix that names of the other library may have or lack. An export writes it.
      old_endings: endings of names in older files, with their replacements today.
      settings: the settings of a model.
      required: keys of the configuration, and the values for which meshtf has a model.
      needs: keys of the configuration, each with other keys. Without one of these, the key means nothing.
      axes: the setting that gives the size of each axis.
      labels: the labels of axes that have names instead of numbers.
      rules: the rules for tensors.
      ignored: names of tensors that meshtf does not need, such as stored masks.
      kept: the same, for tensors that an export writes again, such as counts of steps.
      gin: the model as gin.
      form: how its configurations are read.
      tied: tensors of the other library that are copies if `is_tied` holds, each with its original.
      layers: the layers, if they are of several kinds.
    """

    path: Path
    format: str
    model_types: tuple[str, ...]
    prefix: str
    old_endings: Mapping[str, str]
    settings: tuple[Setting, ...]
    required: Mapping[str, tuple[Value, ...]]
    needs: Mapping[str, tuple[str, ...]]
    axes: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]
    rules: tuple[TensorRule, ...]
    ignored: tuple[NamePattern, ...]
    kept: tuple[NamePattern, ...]
    gin: tuple[GinPart, ...]
    form: ConfigurationForm
    tied: Mapping[str, str]
    layers: Layers | None

    @property
    def name(self) -> str:
        return self.path.stem

    @classmethod
    def read(cls, path: Path) -> Family:
        """Reads a file of rules.

        Raises:
          CheckpointError: if the file cannot be read, or has unknown or wrong entries.
        """
        try:
            return _parsed(path, read_rules(path))
        except OSError as error:
            raise CheckpointError(f"the rules {path} cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"the rules {path} cannot be read: {error}") from None

    def model(self, configuration: Mapping[str, Any], shapes: Shapes, where: str) -> FamilyModel:
        """One model of the family.

        Args:
          configuration: the configuration of the other library.
          shapes: the shapes of the tensors that are converted.
          where: the name of the configuration in messages.

        Raises:
          CheckpointError: if the configuration lacks something, or describes a model that meshtf lacks.
        """
        configuration = self.form.read(configuration, where)
        for key, allowed in self.required.items():
            found = evaluated(key, configuration)
            if found is not None and found not in allowed:
                raise CheckpointError(
                    f"the configuration {where} has {key} = {found!r}; models of these rules, {self.name}, have "
                    f"{' or '.join(map(repr, allowed)) or 'none'}: meshtf has no such model"
                )
        for key, others in self.needs.items():
            if evaluated(key, configuration) is not None and all(evaluated(o, configuration) is None for o in others):
                raise CheckpointError(
                    f"the configuration {where} has {key} but not {' or '.join(others)}, without which it "
                    "means nothing; add what the model was trained with"
                )
        settings = {setting.name: setting.value(configuration, shapes, where) for setting in self.settings}
        plan = None if self.layers is None else self.layers.plan(configuration, where)
        model = FamilyModel(self, settings, plan)
        for axis in model.asked_axes:
            value = settings[self.axes[axis]]
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise CheckpointError(_NO_SIZE.format(where=where, what=self.axes[axis], value=value))
        model.check_counts(where)
        return model

    def check_keys(self, configuration: Mapping[str, Any], ignored: Collection[str], where: str) -> None:
        """Raises CheckpointError if the configuration has keys, other than `ignored`, that are unknown to the rules."""
        sources = (*self.required, *self.needs, *itertools.chain(*self.needs.values()), *self.form.fallbacks.values())
        consumed = {key for source in sources for key in keys_of(source)}
        consumed |= {key for setting in self.settings for key in setting.keys}
        consumed |= set() if self.layers is None else {self.layers.key}
        self.form.check_keys(configuration, consumed, ignored, self.path.name, where)

    def is_tied(self, configuration: Mapping[str, Any], where: str) -> bool:
        """Whether the configuration says that the tensors in `tied` are copies. The weights may show otherwise."""
        (setting,) = [setting for setting in self.settings if setting.name == "is_tied"]
        return bool(setting.value(self.form.read(configuration, where), {}, where))

    def todays_name(self, name: str, known: Collection[str]) -> str:
        """The full name of a tensor of the other library in today's form. `known`: the names in the rules."""
        for old, new in self.old_endings.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        whole = self.prefix + name
        return whole if name not in known and (whole in known or self.is_ignored(whole)) else name

    def is_ignored(self, name: str) -> bool:
        return any(pattern.matches(name) for pattern in (*self.ignored, *self.kept))


@dataclasses.dataclass(frozen=True)
class FamilyModel:
    """A model of a family, with its settings."""

    family: Family
    settings: Mapping[str, Value]
    plan: LayerPlan | None = None

    @functools.cached_property
    def rules(self) -> list[TensorRule]:
        return placed(self._rules, self.sizes.axes)

    @functools.cached_property
    def sizes(self) -> Sizes:
        given = {axis: self.settings[setting] for axis, setting in self.family.axes.items()}
        sizes = {axis: size for axis, size in given.items() if isinstance(size, int)}
        labels = {**self.family.labels, **({} if self.plan is None else self.plan.labels)}
        return Sizes({**sizes, **{axis: len(names) for axis, names in labels.items()}}, labels)

    @property
    def asked_axes(self) -> list[str]:
        """The family's axes that occur in this model's rules."""
        asked = {axis for rule in self._rules for axis in rule.there.all_axes}
        return [axis for axis in self.family.axes if axis in asked]

    @property
    def _rules(self) -> list[TensorRule]:
        return [rule for rule in self.family.rules if holds(rule.when, self.settings)]

    @property
    def names_there(self) -> frozenset[str]:
        """The names of all its tensors in the other library."""
        sizes = self.sizes
        return frozenset(n for rule in self.rules for n in rule.there.names({}, sizes.axes, sizes.labels))

    def check_counts(self, where: str) -> None:
        """Raises CheckpointError if the configuration has so many layers that listing their names would take hours."""
        axes = self.sizes.axes
        for side in (side for rule in self.rules for side in (rule.there, rule.here)):
            if (count := math.prod(axes[axis] for axis in side.name.axes)) > _MOST_TENSORS:
                raise CheckpointError(
                    f"the configuration {where} asks for {counted(count, 'tensor')} {side.name.text}, and no model has "
                    f"more than {_MOST_TENSORS:,} of a kind; the file was probably edited"
                )

    @property
    def gin(self) -> str:
        """The model's gin file."""
        written = {name: repr(value) for name, value in self.settings.items()}
        layers = self.family.layers
        if self.plan is not None and layers is not None:
            written["stacks"] = self.plan.gin(str(self.settings.get(layers.owner or "", "TransformerLM")))
        parts = [part.text.format(**written) for part in self.family.gin if holds(part.when, self.settings)]
        return "".join(parts)


def type_of(configuration: Mapping[str, Any]) -> str:
    """The type of a model: its `model_type`, or else the `architecture` that timm writes."""
    return str(configuration.get("model_type", configuration.get("architecture")))


def packaged_families(format_name: str) -> list[Path]:
    """The files of rules for one library that come with meshtf."""
    return sorted((Path(__file__).parent / "families" / format_name).glob("*.toml"))


def find_family(format_name: str, model_type: str) -> Family:
    """The family of a configuration's `model_type`.

    Raises:
      CheckpointError: if there is no such family. The message lists the known types.
    """
    families = [Family.read(path) for path in packaged_families(format_name)]
    for family in families:
        if model_type in family.model_types:
            return family
    known = sorted(name for family in families for name in family.model_types)
    raise CheckpointError(
        f"there are no rules for models of type {model_type!r}{nearest(model_type, known)}; there are for "
        f"{', '.join(known)}. --rules=FILE gives others, in the form of {families[0].path}"
    )


def _parsed(path: Path, content: Mapping[str, Any]) -> Family:
    if unknown := [key for key in content if key not in _KEYS]:
        raise RuleFault(f"it has {unknown[0]!r}{nearest(unknown[0], _KEYS)}; there are {', '.join(_KEYS)}")
    if missing := [key for key in ("format", "tensors") if key not in content]:
        raise RuleFault(f"it lacks {missing[0]!r}")
    settings = tuple(Setting.parse(name, value) for name, value in content.get("settings", {}).items())
    family = Family(
        path,
        content["format"],
        tuple(content.get("model_types", ())),
        content.get("prefix", ""),
        dict(content.get("old_endings", {})),
        settings,
        {key: _as_tuple(value) for key, value in content.get("required", {}).items()},
        {key: _as_tuple(value) for key, value in content.get("needs", {}).items()},
        content.get("axes", {}),
        {axis: tuple(names) for axis, names in content.get("labels", {}).items()},
        tuple(rule for entry in content["tensors"] for rule in rules_of(entry)),
        tuple(NamePattern(text) for text in content.get("ignored", [])),
        tuple(NamePattern(text) for text in content.get("kept", [])),
        tuple(GinPart(entry["text"], _as_tuple(entry.get("when", ()))) for entry in content.get("gin", [])),
        ConfigurationForm.parse(content.get("configuration", {})),
        dict(content.get("tied", {})),
        Layers.parse(content["layers"]) if "layers" in content else None,
    )
    _check_names(family)
    return family


def _check_names(family: Family) -> None:
    """Raises RuleFault if rules or gin parts use an unknown axis, setting or label."""
    settings = [setting.name for setting in family.settings]
    conditions = [c for part in (*family.rules, *family.gin) for c in part.when]
    asked = [name for condition in conditions for name, _ in alternatives(condition)]
    owner = [] if family.layers is None or family.layers.owner is None else [family.layers.owner]
    for name in (*family.axes.values(), *asked, *(["is_tied"] if family.tied else []), *owner):
        if name not in settings:
            raise RuleFault(f"there is no setting {name!r}{nearest(name, settings)}")
    known = (*family.axes, *family.labels, *(() if family.layers is None else family.layers.axes))
    labels = (*family.labels, *(() if family.layers is None else family.layers.labels))
    for rule in family.rules:
        for axis in sorted(rule.there.all_axes):
            if axis not in known:
                raise RuleFault(f"{rule.there.name.text}: there is no axis {axis!r}{nearest(axis, known)}")
        for name in (rule.there.name, rule.here.name):
            for label in name.labelled:
                if label not in labels:
                    raise RuleFault(f"{name.text}: there are no labels {label!r}{nearest(label, labels)}")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
