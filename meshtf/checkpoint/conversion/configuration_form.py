"""Reads a `config.json` as Transformers does: with its defaults, other names and older places of keys.

Transformers fills in absent keys, lets one key win over another, and moves keys to new places. Rules see the result.
A key must be used by a rule, or listed as having no effect. Otherwise the import refuses it by name.
With `aliases = {hidden_size = "n_embd"}`, `defaults = {n_head = 12}` and `fallbacks = {n_inner = "4 * n_embd"}`

    {"hidden_size": 8, "n_inner": null}  is read as  {"n_embd": 8, "n_head": 12, "n_inner": 32}
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.axes import RuleFault
from meshtf.checkpoint.conversion.configuration_readers import READERS as _READERS
from meshtf.checkpoint.conversion.decoders.deepseek import READERS as _OF_DEEPSEEK
from meshtf.checkpoint.conversion.decoders.gpt_oss import READERS as _OF_GPT_OSS
from meshtf.checkpoint.conversion.decoders.modernbert import READERS as _OF_MODERNBERT
from meshtf.checkpoint.conversion.decoders.readers import READERS as _OF_DECODERS
from meshtf.checkpoint.conversion.images.resnet import READERS as _OF_RESNET
from meshtf.checkpoint.conversion.images.torchvision_vit import READERS as _OF_TORCHVISION_VIT
from meshtf.checkpoint.conversion.settings import evaluated
from meshtf.errors import CheckpointError, nearest

READERS = {
    **_READERS,
    **_OF_DECODERS,
    **_OF_DEEPSEEK,
    **_OF_GPT_OSS,
    **_OF_MODERNBERT,
    **_OF_RESNET,
    **_OF_TORCHVISION_VIT,
}
_FIELDS = ("aliases", "defaults", "defaults_of", "fallbacks", "optional", "readers", "without_effect")
_UNKNOWN = """\
the configuration {where} has {keys}, which the rules {rules} do not know: the model may compute something else. \
If you know that a key does not change the results, give {flags}"""
_NULL = """\
the configuration {where} has {key} = null, but Transformers' models of this type need a value; write the value that \
the model was trained with"""


@functools.cache
def _known_without_effect() -> Mapping[str, str]:
    """The keys of any model that change no result, each with the reason."""
    path = Path(__file__).parent / "families" / "huggingface_without_effect.toml"
    return tomllib.loads(path.read_text("utf-8"))


@dataclasses.dataclass(frozen=True)
class ConfigurationForm:
    """The rules for reading one family's configurations.

    Attributes:
      aliases: other names of keys. If both names are present, the alias wins, as in Transformers.
      defaults: the values of absent keys.
      defaults_of: the defaults of single `model_type`s, which win over `defaults`.
      fallbacks: the source, as in settings, of a key that is null, or that is absent and has no default.
      optional: keys that may be null.
      readers: names of `READERS`, which convert older forms to today's form, in order.
      without_effect: keys that change no result, each with the reason.
    """

    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    defaults_of: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    fallbacks: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    without_effect: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> ConfigurationForm:
        """Reads the table `[configuration]` of a file of rules.

        Raises:
          RuleFault: if the table has an unknown entry.
        """
        if unknown := [key for key in content if key not in _FIELDS]:
            raise RuleFault(f"[configuration] has {unknown[0]!r}{nearest(unknown[0], _FIELDS)}")
        if missing := [name for name in content.get("readers", ()) if name not in READERS]:
            raise RuleFault(f"there is no reader {missing[0]!r}{nearest(missing[0], READERS)}")
        lists = {key: tuple(content[key]) for key in ("optional", "readers") if key in content}
        return cls(**{**content, **lists})

    def read(self, configuration: Mapping[str, Any], where: str) -> dict[str, Any]:
        """The configuration in the form that rules read.

        Raises:
          CheckpointError: if a reader cannot read its keys.
        """
        found = {**self.defaults, **self.defaults_of.get(str(configuration.get("model_type")), {})}
        found |= {key: value for key, value in configuration.items() if key not in self.aliases}
        found |= {self.aliases[key]: value for key, value in configuration.items() if key in self.aliases}
        for name in self.readers:
            found = READERS[name](found, where)
        for key, source in self.fallbacks.items():
            if found.get(key) is None:
                found[key] = evaluated(source, found)
        return found

    def check_keys(
        self,
        configuration: Mapping[str, Any],
        consumed: Collection[str],
        ignored: Collection[str],
        rules: str,
        where: str,
    ) -> None:
        """Checks the keys of a configuration.

        Args:
          configuration: the configuration as it is in its file.
          consumed: keys that rules use. Keys in tables are dotted.
          ignored: keys that the user allows to be unknown.
          rules: the name of the rules in messages.
          where: the name of the configuration in messages.

        Raises:
          CheckpointError: if keys are unknown (the message names all of them), or if a key is null that must not be.
        """
        known = {*consumed, *ignored, *self.aliases, *self.without_effect, *_known_without_effect()}
        readers = [READERS[name] for name in self.readers]
        known |= {key for reader in readers for key in reader.keys}
        tables = {old: new for reader in readers for old, new in reader.tables.items()}
        unknown = {key: value for key, today, value in _all_keys(configuration, known, tables) if today not in known}
        nulls = [key for key in (*consumed, *self.defaults) if key in configuration and configuration[key] is None]
        if wrong := [key for key in nulls if not (key in self.optional or key in self.fallbacks or key in ignored)]:
            raise CheckpointError(_NULL.format(where=where, key=wrong[0]))
        if unknown:
            keys = ", ".join(f"{key} = {_shortened(value)}" for key, value in unknown.items())
            flags = " ".join(f"--ignore_key={key}" for key in unknown)
            raise CheckpointError(_UNKNOWN.format(where=where, keys=keys, rules=rules, flags=flags))


def _all_keys(
    configuration: Mapping[str, Any], known: Collection[str], tables: Mapping[str, str]
) -> Iterator[tuple[str, str, Any]]:
    """Yields each key, its name today, and its value. Null keys outside of tables are left out.

    A table that is not a known key itself yields its keys, dotted.
    """
    for key, value in configuration.items():
        if isinstance(value, Mapping) and key not in known:
            yield from ((f"{key}.{inner}", f"{tables.get(key, key)}.{inner}", own) for inner, own in value.items())
        elif value is not None and not (key in tables and value == {}):
            yield key, key, value


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
