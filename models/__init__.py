"""Models, written with layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.models.amoeba_net.amoeba_net_d import AmoebaNetD
from meshtf.models.detection.default_boxes import DefaultBoxes
from meshtf.models.detection.ssd import SSD
from meshtf.models.dlrm import DLRM
from meshtf.models.encoder_decoder import EncoderDecoder
from meshtf.models.incremental_decoder import IncrementalDecoder
from meshtf.models.masked_lm import MaskedLM
from meshtf.models.mlp_classifier import MLPClassifier
from meshtf.models.resnet import ResNet, ResNet50
from meshtf.models.text_classifier import TextClassifier
from meshtf.models.transformer_lm import TransformerLM
from meshtf.models.unet import UNet
from meshtf.models.vision_transformer import VisionTransformer

__all__ = [
    "DLRM",
    "SSD",
    "AmoebaNetD",
    "DefaultBoxes",
    "EncoderDecoder",
    "IncrementalDecoder",
    "MLPClassifier",
    "MaskedLM",
    "ResNet",
    "ResNet50",
    "TextClassifier",
    "TransformerLM",
    "UNet",
    "VisionTransformer",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
