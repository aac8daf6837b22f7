from __future__ import annotations

import re
from pathlib import Path

import gin
import pytest

from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.quality.quality_target import configured_target
from meshtf_programs.quality_tasks import listed_tasks, task_file


def test_each_task_is_listed_with_the_target_that_its_file_has() -> None:
    tasks, on_paper = listed_tasks(Path.cwd()).split("\n\n")
    names = [line.split()[0] for line in tasks.splitlines()]
    assert names == sorted(names)
    assert {"digits_resnet", "letters_resnet", "letters_vit", "lm_tiny", "numbers_translation"} <= {*names}
    for line in tasks.splitlines():
        name, metric, comparison, value = line.split()[:4]
        try:
            read_configuration([find_gin_file(task_file(name))], [])
            target = configured_target()
        finally:
            gin.clear_config()
        assert (target.benchmark, target.metric, target.value) == (name, metric, float(value))
        assert comparison == {"max": ">=", "min": "<="}[target.mode]
    for line in on_paper.splitlines()[1:]:
        assert find_gin_file(line.split()[0]).is_file()
        assert len(line.split()) > 3


def test_a_misspelt_task_has_the_nearest() -> None:
    assert task_file("./own.gin") == "./own.gin"
    with pytest.raises(ValueError, match=re.escape('there is no task "digit_resnet"; did you mean "digits_resnet"?')):
        task_file("digit_resnet")
