"""Time to quality: trainings that are timed until they reach a target, by MLPerf's rules."""

from __future__ import annotations

from meshtf.train.quality.quality_target import QualityTarget

__all__ = ["QualityTarget"]
