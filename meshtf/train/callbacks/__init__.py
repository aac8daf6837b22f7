"""Callbacks that come with meshtf: writers of curves, early stopping, the best checkpoint, samples, a profile."""

from __future__ import annotations

from meshtf.train.callbacks.best_checkpoint import BestCheckpoint
from meshtf.train.callbacks.decoded_samples import DecodedSamples
from meshtf.train.callbacks.early_stopping import EarlyStopping
from meshtf.train.callbacks.mlflow_writer import MlflowWriter
from meshtf.train.callbacks.profile import Profile
from meshtf.train.callbacks.tensorboard import TensorBoard
from meshtf.train.callbacks.wandb_writer import WandbWriter

__all__ = [
    "BestCheckpoint",
    "DecodedSamples",
    "EarlyStopping",
    "MlflowWriter",
    "Profile",
    "TensorBoard",
    "WandbWriter",
]
