"""The list of the original's own tests is what docs/migration.md counts, and each that does not pass says why."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import meshtf.compat.mesh_tensorflow as mtf

TREE = Path(__file__).parents[3]
LISTED = tomllib.loads((Path(__file__).parent / "original_tests.toml").read_text())


def test_the_page_counts_what_is_listed() -> None:
    rows = re.findall(r"^\| `([\w/]+_test\.py)` \| (\d+) \| (\d+) \|", (TREE / "docs/migration.md").read_text(), re.M)
    counted = {name: (int(passed), int(failed)) for name, passed, failed in rows}
    assert counted == {name: (len(f["passed"]), len(f.get("not_passed", {}))) for name, f in LISTED.items()}


def test_each_that_does_not_pass_says_why() -> None:
    reasons = [reason for f in LISTED.values() for reason in f.get("not_passed", {}).values()]
    assert all(len(reason) > 20 for reason in reasons)
    named = {name for reason in reasons for name in re.findall(r"write (mtf\.\w+)", reason)}
    assert named
    assert all(hasattr(mtf, name.removeprefix("mtf.")) for name in named)
