"""Learning rates of Mesh TensorFlow: one function, or the product of several.

For example, `factors = [@truncated_rsqrt, @linear_decay, 2.0]` is an inverse square root of the step that decays at the
end, times two. In meshtf it is one NoamSchedule. A product that has no such form is reported as lost.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping, Sequence

from meshtf.checkpoint.conversion.operative_config import Binding
from meshtf.compat.mesh_tensorflow_gin.source import NOT_LITERAL, Outcome, Rule, Source, is_adafactor, lost, reference

_SCHEDULE = "run.learning_rate_schedule"
_PRODUCT = "product_learning_rate"
_SLANTED = "slanted_triangular"
_PART = re.compile(r"@[\w./]+(?:\(\))?|[^\s,\[\]()]+")
_OTHER = "another schedule: choose one of meshtf.optimize"

_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "learning_rate_schedule_noam": {
        "warmup_steps": 10_000, "linear_decay_fraction": 0.1, "multiplier": 1.0, "offset": 0,
    },
    "truncated_rsqrt": {"warmup_steps": 10_000},
    "linear_decay": {"steps_or_fraction": 0.1},
    "constant": {"value": 1.0},
    _PRODUCT: {"offset": 0},
    _SLANTED: {"cut_fraction": 0.1, "ratio": 32, "max_learning_rate": 0.01, "start_step": 0},
}  # fmt: skip
"""The parameters of the functions, with Mesh TensorFlow's defaults."""


@dataclasses.dataclass(frozen=True)
class _Rate:
    """multiplier * rsqrt(max(step - offset, root)) * a decay at the end. `root` and `decay` may be missing."""

    functions: tuple[str, ...]
    multiplier: float = 1.0
    root: float | None = None
    decay: float | None = None
    offset: float = 0


def schedule(binding: Binding, source: Source) -> Outcome:
    """Translates `run.learning_rate_schedule`."""
    rate = _rate(source)
    if not is_adafactor(source):
        return lost("run.optimizer is another optimizer")
    if rate is None:
        return _slanted(source) if reference(binding.resolved) == _SLANTED else lost(_OTHER)
    if rate.root is None:
        return Outcome(
            {"AdafactorOptimizer.learning_rate": "@ConstantSchedule()", "ConstantSchedule.value": repr(rate.multiplier)}
        )
    total = _total_steps(source)
    if total is NOT_LITERAL or not isinstance(total, int):
        return lost("its end depends on run.train_steps, which is no number: set NoamSchedule.total_steps")
    # Mesh TensorFlow's fraction counts only the steps after the offset.
    share = (
        0.0 if not rate.decay else rate.decay / total if rate.decay > 1 else rate.decay * (total - rate.offset) / total
    )
    return Outcome(
        {
            "AdafactorOptimizer.learning_rate": "@NoamSchedule()",
            "NoamSchedule.total_steps": repr(total),
            "NoamSchedule.warmup_steps": repr(int(rate.root)),
            "NoamSchedule.linear_decay_fraction": repr(share),
            "NoamSchedule.multiplier": repr(float(rate.multiplier)),
            "NoamSchedule.offset": repr(int(rate.offset)),
        }
    )


def _slanted(source: Source) -> Outcome:
    total, numbers = _total_steps(source), _numbers(source, _SLANTED)
    if numbers is None or not isinstance(total, int):
        return lost("its end depends on run.train_steps, which is no number: set SlantedTriangularSchedule.total_steps")
    given = dict(zip(_DEFAULTS[_SLANTED], numbers, strict=True))
    lines = {f"SlantedTriangularSchedule.{name}": repr(number) for name, number in given.items()}
    return Outcome(
        {
            "AdafactorOptimizer.learning_rate": "@SlantedTriangularSchedule()",
            # Mesh TensorFlow's lines have the length of the whole training, wherever they begin.
            "SlantedTriangularSchedule.total_steps": repr(total + int(given["start_step"])),
            **lines,
        }
    )


def part_of_schedule(binding: Binding, source: Source) -> Outcome:
    """Translates a parameter of one of the functions.

    Its value is in the lines of `schedule` if the schedule uses it.
    """
    rate = _rate(source)
    if binding.scope:
        return lost("Mesh TensorFlow reads it where there is no scope")
    given = source.find(_SCHEDULE)
    if given is None or schedule(given, source).lost:
        return lost("run.learning_rate_schedule is not carried over")
    owner = binding.plain_name.partition(".")[0]
    return (
        Outcome()
        if owner in ((_SLANTED,) if rate is None else rate.functions)
        else lost("run.learning_rate_schedule does not use it")
    )


def _total_steps(source: Source) -> object:
    of_all_runs = source.value("run.total_run_steps")
    return source.value("run.train_steps", default=NOT_LITERAL) if of_all_runs is None else of_all_runs


def _rate(source: Source) -> _Rate | None:
    """The schedule as one product, or None if it has no counterpart."""
    given = source.find(_SCHEDULE)
    parts = [] if given is None else _PART.findall(given.resolved)
    if [reference(part) for part in parts] == ["learning_rate_schedule_noam"]:
        names = _numbers(source, "learning_rate_schedule_noam")
        if names is None:
            return None
        warmup, fraction, multiplier, offset = names
        return _Rate(("learning_rate_schedule_noam",), multiplier, warmup, fraction, offset)
    if [reference(part) for part in parts] == ["constant_learning_rate"]:
        value = source.value("constant_learning_rate.learning_rate", default=NOT_LITERAL)
        return _Rate(("constant_learning_rate",), value) if isinstance(value, int | float) else None
    if [reference(part) for part in parts] == [_PRODUCT]:
        factors = source.find(f"{_PRODUCT}.factors")
        parts = [] if factors is None else _PART.findall(factors.resolved)
    return _product(parts, source)


def _product(parts: Sequence[str], source: Source) -> _Rate | None:
    offset = _numbers(source, _PRODUCT)
    if not parts or offset is None:
        return None
    rate = _Rate((_PRODUCT,), offset=offset[0])
    for part in parts:
        name = reference(part)
        numbers = _numbers(source, name) if part.startswith("@") else _as_numbers(part)
        if numbers is None or name == _SLANTED:
            return None
        functions = (*rate.functions, name)
        if name == "truncated_rsqrt" and rate.root is None:
            rate = dataclasses.replace(rate, functions=functions, root=numbers[0])
        elif name == "linear_decay" and rate.decay is None:
            rate = dataclasses.replace(rate, functions=functions, decay=numbers[0])
        elif name == "constant" or not part.startswith("@"):
            rate = dataclasses.replace(rate, functions=functions, multiplier=rate.multiplier * numbers[0])
        else:
            return None
    return None if rate.decay is not None and rate.root is None else rate


def _as_numbers(text: str) -> list[float] | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else None


def _numbers(source: Source, function: str) -> list[float] | None:
    """The values of a function's parameters, or None for an unknown function or a parameter that is no number."""
    if function not in _DEFAULTS:
        return None
    values = [source.value(f"{function}.{name}", default=value) for name, value in _DEFAULTS[function].items()]
    are_numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return values if are_numbers else None


SCHEDULE_RULES: Mapping[str, Rule] = {
    _SCHEDULE: schedule,
    **{f"{function}.{name}": part_of_schedule for function, names in _DEFAULTS.items() for name in names},
    f"{_PRODUCT}.factors": part_of_schedule,
    "constant_learning_rate.learning_rate": part_of_schedule,
}
