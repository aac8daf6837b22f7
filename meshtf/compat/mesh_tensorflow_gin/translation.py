"""Translates a Mesh TensorFlow gin file to one of meshtf: encoder, decoder and training. It lists what is lost.

Each line of the source has one of three outcomes. For example:

    run.train_steps = 1000                  Training.num_steps = 1000
    run.autostack = True                    no line, because meshtf has no such choice and no result depends on it
    Unitransformer.ensemble = 4             a loss, with the reason in words
"""

from __future__ import annotations

import dataclasses
import re
import textwrap

from meshtf.checkpoint.conversion.operative_config import Binding, GinSource
from meshtf.compat.mesh_tensorflow_gin.layers import LAYER_RULES, absent, is_of_unused_layer
from meshtf.compat.mesh_tensorflow_gin.runs import MODULES, RUN_RULES
from meshtf.compat.mesh_tensorflow_gin.schedules import SCHEDULE_RULES
from meshtf.compat.mesh_tensorflow_gin.source import CARRIED, Outcome, Rule, Source, is_adafactor, lost, number
from meshtf.errors import CheckpointError

_MODELS = ("bitransformer", None)
_SIZES = ("d_model", "d_ff", "num_layers", "num_heads", "d_kv", "dropout_rate", "vocab_size")
"""Macros of both libraries: numbers at the top of T5's files and of meshtf's."""

_RULES = {**LAYER_RULES, **RUN_RULES, **SCHEDULE_RULES}
_SHOWN = 100
_MACRO = re.compile(r"%([\w.]+)")

_HEADER = """\
# From {source}, of Mesh TensorFlow.
include "t5_1_0.gin"
import meshtf.train.data

Training.model = @EncoderDecoder()"""
_OPTIMIZER = "Training.optimizer = @AdafactorOptimizer()\nAdafactorOptimizer.is_mesh_tensorflow_variant = True"
_ABOUT_OPTIMIZER = ("run.optimizer", "run.learning_rate_schedule", "AdafactorOptimizer.", "adafactor_decay_rate_pow.")
_TASK = """\
# Choose a task of meshtf.train.data.
# Training.task = @TextTask()"""

_NOT_AN_ENCODER_DECODER = """\
{source} has a model of type {found!r}, and only an encoder with a decoder, "bitransformer", can be translated; \
meshtf-train --list shows configurations of others"""

_ANOTHER_FILE = """\
{source} has no line with a counterpart in meshtf. Is it a file of Mesh TensorFlow or of T5, such as their \
operative_config.gin? Nothing was written."""


@dataclasses.dataclass(frozen=True)
class Loss:
    """A line that the translation lacks in whole or in part, and what this means.

    Attributes:
      line: its number, from 1. 0 means that the source lacks the parameter, and Mesh TensorFlow has a default.
      text: the line.
      meaning: the meaning of the loss, in words.
      file: the name of the file if it is an included one.
    """

    line: int
    text: str
    meaning: str
    file: str = ""

    def __str__(self) -> str:
        if not self.line:
            return f"not given: {self.text}\n    {self.meaning}"
        where = f"{self.file}, line" if self.file else "line"
        return f"{where} {self.line}: {textwrap.shorten(self.text, _SHOWN, placeholder=' ...')}\n    {self.meaning}"


@dataclasses.dataclass(frozen=True)
class Translation:
    """A gin file of meshtf's, and the parts of the source that it lacks."""

    text: str
    losses: tuple[Loss, ...]


def translated(read: GinSource, name: str) -> Translation:
    """Translates a file. Each of its lines is in the result, holds by default, or is among the losses.

    Args:
      read: the result of `read_source`.
      name: the name of the file in the result and in messages.

    Raises:
      CheckpointError: the model is not an encoder with a decoder, or no line is Mesh TensorFlow's.
    """
    source = Source(read.bindings)
    if (found := source.value("run.model_type", default=source.value("model_type"))) not in _MODELS:
        raise CheckpointError(_NOT_AN_ENCODER_DECODER.format(source=name, found=found))
    outcomes = {binding: _outcome(binding, source) for binding in source.bindings if not _is_other_macro(binding)}
    lines = {name: value for outcome in outcomes.values() for name, value in outcome.lines.items()}
    outcomes |= {b: _outcome_of_macro(b, source, outcomes) for b in source.bindings if b not in outcomes}
    losses = [
        Loss(b.line, f"{b.name} = {b.text}", outcomes[b].lost, b.file) for b in source.bindings if outcomes[b].lost
    ]
    if all(outcome.lost and not outcome.lines for outcome in outcomes.values()):
        raise CheckpointError(_ANOTHER_FILE.format(source=name))
    losses += [Loss(each.line, each.text, each.reason, each.file) for each in read.unread]
    losses += [Loss(0, parameter, meaning) for parameter, meaning in absent(source)]
    speaks_of_it = any(binding.plain_name.startswith(_ABOUT_OPTIMIZER) for binding in source.bindings)
    optimizer = [_OPTIMIZER] if speaks_of_it and is_adafactor(source) else []
    body = "\n".join([*optimizer, *(f"{name} = {value}" for name, value in lines.items())])
    text = "\n\n".join([_HEADER.format(source=name), body, _TASK])
    return Translation(f"{text}\n", tuple(losses))


def _is_other_macro(binding: Binding) -> bool:
    return "." not in binding.name and binding.name not in _SIZES


def _outcome(binding: Binding, source: Source) -> Outcome:
    if source.is_replaced(binding):
        return CARRIED  # only the later line counts, also in Mesh TensorFlow
    rule = _size if binding.name in _SIZES else _RULES.get(binding.plain_name)
    if rule is None:
        owner = binding.plain_name.partition(".")[0]
        if is_of_unused_layer(owner, source):
            return CARRIED
        return lost(MODULES.get(owner, f"there is no {owner} here, or it has no such parameter"))
    return _by_rule(rule, binding, source)


def _by_rule(rule: Rule, binding: Binding, source: Source) -> Outcome:
    try:
        return rule(binding, source)
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        return lost(f"Mesh TensorFlow does not take this value: {error}")


def _size(binding: Binding, source: Source) -> Outcome:
    return Outcome({binding.name: number(binding)})


def _outcome_of_macro(macro: Binding, source: Source, outcomes: dict[Binding, Outcome]) -> Outcome:
    """Returns CARRIED if the translation has all lines that use the macro, directly or through other macros."""
    users = [b for b in source.bindings if macro.name in _MACRO.findall(b.text)]
    if not users:
        return lost("a macro that no line of the source uses")
    left_out = [b.name for b in users if b in outcomes and outcomes[b].lost]
    left_out += [
        b.name for b in users if b not in outcomes and b is not macro and _outcome_of_macro(b, source, outcomes).lost
    ]
    return lost(f"a macro of {', '.join(left_out)}, which is not carried over") if left_out else CARRIED
