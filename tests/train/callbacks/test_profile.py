from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.train import Training
from meshtf.train.callbacks import Profile
from tests.train.test_loop import run


@pytest.mark.parametrize(("stop_after", "last"), [(None, 3), (2, 2)])
def test_steps_are_profiled_also_where_training_is_stopped_among_them(
    stop_after: int | None,
    last: int,
    tiny_training: Callable[..., Training],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended = run(tiny_training(num_steps=4, callbacks=[Profile(2, 3)]), tmp_path, stop_after)
    (profile,) = ended.folder.tensorboard.glob("plugins/profile/*/*.xplane.pb")
    assert profile.stat().st_size > 1000
    assert f"profile:       steps 2 to {last}, in {ended.folder.tensorboard}\n" in capsys.readouterr().out
