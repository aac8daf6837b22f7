"""Checks a log by the rules of MLPerf's own checker, the package mlperf-logging."""

from __future__ import annotations

import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from meshtf.train.quality.quality_target import QualityTarget

RULESET = "0.7.0"
"""The round of MLPerf whose rules count: the one in which 4,096 chips trained four models (Kumar et al. 2020)."""

NOT_INSTALLED = "logs are not checked: that needs mlperf-logging (pip install 'meshtf[mlperf]')"


def checker_name() -> str | None:
    """Returns the checker's name, version and rules, or None if it is not installed."""
    try:
        return f"mlperf-logging {metadata.version('mlperf-logging')}, training rules {RULESET}"
    except metadata.PackageNotFoundError:
        return None


def log_problems(log: Path, target: QualityTarget) -> list[str]:
    """Returns the problems that the checker finds in a log.

    The rules are those that the package has for all tasks. This task's name and quality replace those of MLPerf's
    tasks. `checker_name` says whether the checker is installed.
    """
    from mlperf_logging.compliance_checker import mlp_compliance  # an optional dependency

    own: Any = mlp_compliance
    rules = Path(own.__file__).parent / f"training_{RULESET}" / "common.yaml"
    checker = own.make_checker("training", RULESET, quiet=True, werror=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.yaml"
        path.write_text(_rules_of_task(rules.read_text(), target))
        own.main(str(log), str(path), checker)
    return [*map(str, [*checker.warnings.values(), *checker.overwritable.values(), *checker.not_overwritable])]


def _rules_of_task(text: str, target: QualityTarget) -> str:
    """Returns the rules of all tasks for a task that MLPerf does not have."""
    import yaml  # a dependency of the checker

    rules = yaml.load(text, Loader=yaml.BaseLoader)
    for rule in (each["KEY"] for each in rules if "KEY" in each):
        if rule["NAME"] == "submission_benchmark":
            rule["CHECK"] = f" v['value'] == {target.benchmark!r} "
        if rule["NAME"] == "submission_division":
            del rule["POST"]  # it includes the rules of one of MLPerf's tasks
        if rule["NAME"] == "eval_accuracy":
            comparison = ">=" if target.mode == "max" else "<="
            rule["ATLEAST_ONE_CHECK"] = f"v['value'] {comparison} {target.value!r}"
    return str(yaml.dump(rules))
