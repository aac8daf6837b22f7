from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.train import Trainer, Training
from meshtf.train.callbacks import Profile
from tests.train.test_loop import run


def test_steps_are_profiled_also_where_training_is_stopped_among_them(
    tiny_training: Callable[..., Training], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = Trainer(tiny_training(num_steps=4, callbacks=[Profile(2, 3)]))
    for stop_after, last in ((None, 3), (2, 2)):
        ended = run(trainer.training, tmp_path / str(last), stop_after, trainer)
        (profile,) = ended.folder.tensorboard.glob("plugins/profile/*/*.xplane.pb")
        assert profile.stat().st_size > 1000
        assert f"profile:       steps 2 to {last}, in {ended.folder.tensorboard}\n" in capsys.readouterr().out
