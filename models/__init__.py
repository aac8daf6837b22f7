"""Models, written with layers."""

from __future__ import annotations

from meshtf.models.mlp_classifier import MLPClassifier

__all__ = ["MLPClassifier"]
