"""The flags that override fields of gin's `Decoding`, which says how text is continued."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.options import NEVER, OPTIONS_OF, OPTIONS_OF_RULES, Decoding, configured_decoding
from meshtf.train.decoding.programs import greatest_sizes
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.training import Training

OF_ALL_METHODS = ("max_length", "max_new_tokens", "batch_size", "seed")

_NO_EFFECT = """\
--{option} has no effect with --{what}; {where}."""


def given_options(values: flags.FlagValues) -> dict[str, Any]:
    """Returns the fields of `Decoding` that flags set, and "stop" if it is given."""
    of_methods = [name for names in OPTIONS_OF.values() for name in names]
    names = dict.fromkeys(["method", *of_methods, *OF_ALL_METHODS, "stop"])
    given = {name: values[name].value for name in names if values[name].value not in (None, [])}
    if "early_stopping" in given:
        given["early_stopping"] = NEVER if given["early_stopping"] == NEVER else given["early_stopping"] == "true"
    return given


def decoding_bindings(values: flags.FlagValues) -> list[Parameter]:
    """Returns the gin bindings for the flags, except for --stop, which adds texts to those of gin."""
    given = given_options(values).items()
    return [Parameter(f"--{name}", f"Decoding.{name} = {value!r}") for name, value in given if name != "stop"]


def decoding_of(values: flags.FlagValues, training: Training, *, is_score: bool = False) -> Decoding:
    """Returns the decoding that gin and --stop describe. Gin must hold `decoding_bindings`.

    Raises:
      ConfigurationError: if the model is not one of text, or an option has no effect or an impossible value.
    """
    greatest_sizes(training)
    given = given_options(values)
    texts = given.pop("stop", [])
    decoding = configured_decoding()
    check_effect([*given, *(["stop"] if texts else [])], decoding.method, decoding.beam_rules, is_score=is_score)
    return dataclasses.replace(decoding, stop_texts=(*decoding.stop_texts, *texts))


def check_effect(given: Sequence[str], method: str, beam_rules: str, *, is_score: bool) -> None:
    """Raises ConfigurationError if one of the given options would have no effect."""
    for option in given:
        methods = [name for name, options in OPTIONS_OF.items() if option in options]
        if is_score and option not in ("batch_size", "max_length"):
            raise ConfigurationError(_NO_EFFECT.format(option=option, what="score", where="it is for decoding"))
        if methods and method not in methods:
            where = "it is for " + " and ".join(f"--method={name}" for name in methods)
            raise ConfigurationError(_NO_EFFECT.format(option=option, what=f"method={method}", where=where))
        rules = [name for name, options in OPTIONS_OF_RULES.items() if option in options]
        if rules and beam_rules not in rules:
            what, where = f"beam_rules={beam_rules}", f"it is for --beam_rules={rules[0]}"
            raise ConfigurationError(_NO_EFFECT.format(option=option, what=what, where=where))
