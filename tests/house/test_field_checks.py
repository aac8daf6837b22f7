"""Values of fields that their type hints or ranges do not allow, in the dataclasses of layers, models and training."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import gin.config
import numpy as np
import pytest

import meshtf as mtf
from meshtf import models
from meshtf.errors import GraphError, UsageError
from meshtf.field_checks import check_kinds
from meshtf.layers.attention import AttentionConfig, AttentionMask, AttentionOptions
from meshtf.layers.attention.position_encodings.rotary_scaling import LinearRotaryScaling
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.moe import MixtureOfExperts
from meshtf.layers.transformer import (
    CrossAttention,
    FeedForward,
    RelativeBias,
    Residual,
    RmsNorm,
    Rotary,
    SelfAttention,
    TokenEmbedding,
    TokenLoss,
    TransformerStack,
)
from meshtf.quantization.quantization import Quantization
from meshtf.quantization.quantization_aware import QuantizationAware
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.http.server_options import ServerOptions
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.images.augmentations.auto_augment import AutoAugment
from meshtf.train.data.images.augmentations.colour_jitter import ColourJitter
from meshtf.train.data.images.augmentations.crops import DistortedCrop
from meshtf.train.data.images.augmentations.mixes import Mixup
from meshtf.train.data.images.augmentations.rand_augment import RandAugment
from meshtf.train.data.images.image_format import ImageFormat
from meshtf.train.data.objectives.span_corruption import SpanCorruption
from meshtf.train.data.sources.text_files import TextFiles
from meshtf.train.decoding import Decoding, GnmtRules, Penalties, Sampling, Stops, TransformersRules
from meshtf.train.dialog.retrieval import Retrieval
from meshtf.train.initial_checkpoint import InitialCheckpoint

CONFIG = AttentionConfig(2, 4)
FORWARD = FeedForward(8)
STACK = TransformerStack([FORWARD], 2)


class Named(Protocol):
    @property
    def name(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class Fields:
    """A field of each kind, each with a value that is allowed."""

    flag: bool = True
    count: int = 1
    rate: float = 0.5
    limit: int | None = None
    mode: Literal["sum", "mean"] = "sum"
    sizes: Sequence[int] = (1, 2)
    area: tuple[float, float] = (0, 1.5)
    names: Sequence[str] = ("length",)
    table: Mapping[str, int] = dataclasses.field(default_factory=dict)
    function: Callable[[int], int] = abs
    part: FeedForward | None = FORWARD
    named: Named = FORWARD
    anything: Any = None
    unknown: NoSuchName = None  # noqa: F821

    def __post_init__(self) -> None:
        check_kinds(self)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flag", np.True_),
        ("count", np.int64(3)),
        ("rate", np.float32(0.5)),
        ("rate", 2),
        ("limit", 7),
        ("sizes", np.array([1, 2])),
        ("sizes", []),
        ("area", [0.1, 1]),
        ("names", [mtf.Dimension("length", 8)]),
        ("part", None),
        ("anything", object()),
        ("unknown", object()),
    ],
)
def test_what_a_hint_allows(field: str, value: object) -> None:
    assert getattr(Fields(**{field: value}), field) is value


@pytest.mark.quick
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flag", 1, "Fields: flag must be True or False, and is 1"),
        ("flag", "yes", "Fields: flag must be True or False, and is 'yes'"),
        ("count", True, "Fields: count must be an integer, and is True"),
        ("count", 2.0, "Fields: count must be an integer, and is 2.0"),
        ("count", 2**63, f"Fields: count must be an integer, and is {2**63}"),
        ("rate", "0.5", "Fields: rate must be a number, and is '0.5'"),
        ("rate", float("nan"), "Fields: rate must be a number, and is nan; it must be finite"),
        ("rate", None, "Fields: rate must be a number, and is None"),
        ("limit", 0.5, "Fields: limit must be an integer, or None, and is 0.5"),
        ("mode", "men", """Fields: mode must be one of 'sum', 'mean', and is 'men'; did you mean "mean"?"""),
        ("sizes", 4, "Fields: sizes must be a list, each an integer, and is 4"),
        ("sizes", [1, 2.5], "Fields: sizes must be a list, each an integer, and is [1, 2.5]"),
        ("area", [1.0], "Fields: area must be a tuple of a number and a number, and is [1.0]"),
        ("names", "length", "Fields: names must be a list, each a string, and is 'length'"),
        ("table", ["a"], "Fields: table must be a dict, and is ['a']"),
        ("function", "abs", "Fields: function must be a function, and is 'abs'"),
        ("part", 8, "Fields: part must be a FeedForward, or None, and is 8"),
        ("part", "@FeedForward()", "is '@FeedForward()'; in gin @Name() makes one, parentheses included"),
        ("named", FeedForward, "Fields: named must be a Named, and is <class"),
        ("named", 4, "Fields: named must be a Named, and is 4"),
    ],
)
def test_what_a_hint_does_not_allow(field: str, value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the whole message is compared
        Fields(**{field: value})
    assert message in str(caught.value)


WRONG: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: SelfAttention(4), ValueError, "SelfAttention: config must be an AttentionConfig, and is 4"),
    (lambda: SelfAttention(CONFIG, window=2.5), ValueError, "SelfAttention: window must be an integer, or None"),
    (lambda: SelfAttention(CONFIG, block_size=0), ValueError, "block_size must be a positive integer, and is 0"),
    (lambda: CrossAttention(CONFIG, algorithm=5), ValueError, "CrossAttention: algorithm must be a string, and is 5"),
    (lambda: AttentionConfig(True, 4), ValueError, "AttentionConfig: num_heads must be an integer, and is True"),
    (lambda: AttentionConfig(2, 4, use_bias=4), ValueError, "use_bias must be True or False, or a list, each a string"),
    (lambda: AttentionMask(window=2.5), ValueError, "AttentionMask: window must be an integer, or None, and is 2.5"),
    (lambda: AttentionOptions(dropout_rate="0.5"), ValueError, "AttentionOptions: dropout_rate must be a number"),
    (lambda: TransformerStack([FORWARD], 2, 0.1), ValueError, "TransformerStack: residual must be a Residual"),
    (lambda: Residual(dropout_rate=1), ValueError, "Residual: dropout_rate must be in [0, 1), and is 1"),
    (lambda: Residual(RmsNorm), ValueError, "Residual: norm must be a Norm, and is <class"),
    (lambda: FeedForward(8, dropout_rate=-0.1), ValueError, "dropout_rate must be in [0, 1), and is -0.1"),
    (lambda: FeedForward(8, ["relu"], 3), ValueError, "FeedForward: use_bias must be True or False, and is 3"),
    (lambda: RmsNorm(-1), ValueError, "RmsNorm: epsilon must be 0 or more, and is -1"),
    (lambda: Rotary(fraction=1.5), ValueError, "Rotary: fraction must be above 0, and at most 1, and is 1.5"),
    (lambda: Rotary(base=-1), ValueError, "Rotary: base must be above 0, and is -1"),
    (lambda: LinearRotaryScaling("2"), ValueError, "LinearRotaryScaling: factor must be a number, and is '2'"),
    (lambda: RelativeBias(CONFIG, 0), ValueError, "RelativeBias: num_buckets must be a positive integer, and is 0"),
    (lambda: TokenEmbedding(100), ValueError, "TokenEmbedding: vocabulary must be a VocabularyEmbedding, and is 100"),
    (lambda: TokenLoss(label_smoothing=2), GraphError, "TokenLoss: label_smoothing must be in [0, 1], and is 2"),
    (lambda: TokenLoss(z_loss=-1), GraphError, "TokenLoss: z_loss must be 0 or more, and is -1"),
    (lambda: VocabularyEmbedding(8, logit_cap="9"), GraphError, "logit_cap must be a number, or None, and is '9'"),
    (lambda: MixtureOfExperts(4, 8, router=4), ValueError, "MixtureOfExperts: router must be a Router, and is 4"),
    (
        lambda: MixtureOfExperts(4, 8, activation=4),
        ValueError,
        "activation must be an activation, or a list of",
    ),
    (lambda: mtf.RandomUniform(2, 1), ValueError, "RandomUniform: maxval must be above minval, 2, and is 1"),
    (lambda: mtf.TruncatedNormal(stddev=-1), ValueError, "TruncatedNormal: stddev must be 0 or more, and is -1"),
    (lambda: mtf.RandomNormal("0"), ValueError, "RandomNormal: mean must be a number, and is '0'"),
    (lambda: models.MLPClassifier(10, check_labels=3), ValueError, "check_labels must be True or False, and is 3"),
    (lambda: models.ResNet(10, label_smoothing=2), ValueError, "ResNet: label_smoothing must be in [0, 1], and is 2"),
    (lambda: models.ResNet(10, num_channels=0), ValueError, "num_channels must be a positive integer, and is 0"),
    (lambda: models.SSD(4, models.ResNet(9), max_overlap=2), ValueError, "max_overlap must be in [0, 1], and is 2"),
    (lambda: models.DefaultBoxes(steps=4), ValueError, "DefaultBoxes: steps must be a list, each an integer, and is 4"),
    (lambda: models.DefaultBoxes(scales=[0] * 7), ValueError, "scales and aspect_ratios must be above 0, and one"),
    (lambda: Sampling(temperature=-1), ValueError, "Sampling: temperature must be 0 or more, and is -1"),
    (lambda: Sampling(top_p=1.5), ValueError, "Sampling: top_p must be in [0, 1], and is 1.5"),
    (lambda: Sampling(top_k=0), ValueError, "Sampling: top_k must be a positive integer, and is 0"),
    (lambda: Sampling(min_p=2), ValueError, "Sampling: min_p must be in [0, 1], and is 2"),
    (lambda: Penalties(repetition=0), ValueError, "Penalties: repetition must be above 0, and is 0"),
    (lambda: Penalties(min_new_tokens=-1), ValueError, "Penalties: min_new_tokens must be 0 or more, and is -1"),
    (lambda: GnmtRules(-1), ValueError, "GnmtRules: alpha must be 0 or more, and is -1"),
    (
        lambda: TransformersRules(1, "soon"),
        ValueError,
        'early_stopping must be True, False or "never", and is',
    ),
    (lambda: Stops(4), ValueError, "Stops: ids must be a list, each an integer, and is 4"),
    (lambda: Decoding(end_ids=4), ConfigurationError, "Decoding.end_ids must be ids, or None, and is 4"),
    (lambda: Decoding(stop_texts=4), ConfigurationError, "stop_texts must be a list of texts that are not empty"),
    (lambda: Decoding(method=5), ConfigurationError, "Decoding.method must be one of greedy, "),
    (lambda: Decoding(regex=5), ConfigurationError, "Decoding.regex must be a text, or None, and is 5"),
    (lambda: ColourJitter("0.5"), ConfigurationError, "ColourJitter: brightness must be a number, and is '0.5'"),
    (lambda: DistortedCrop(area=4), ConfigurationError, "area must be a tuple of a number and a number, and is 4"),
    (lambda: Mixup(float("inf")), ConfigurationError, "Mixup: alpha must be a number, and is inf; it must be finite"),
    (lambda: RandAugment(2.5), ConfigurationError, "RandAugment: num_layers must be an integer, and is 2.5"),
    (lambda: AutoAugment(4), ConfigurationError, "AutoAugment.policy is 4, and must have a pair of changes or more"),
    (lambda: ImageFormat(mean=4), ConfigurationError, "ImageFormat: mean must be a list, each a number, and is 4"),
    (lambda: SpanCorruption(0.5, "3"), ConfigurationError, "SpanCorruption: mean_span_length must be a number"),
    (lambda: TextFiles(5), ConfigurationError, "TextFiles: patterns must be a string, or a list, each a string"),
    (lambda: Retrieval("abc"), ConfigurationError, "Retrieval: passages must be a list, each a string, and is 'abc'"),
    (
        lambda: InitialCheckpoint("x", 4),
        ConfigurationError,
        "InitialCheckpoint: rules must be a list, each a tuple of a string and",
    ),
    (lambda: Quantization(floating=4), GraphError, "Quantization.floating must be a list of names of scopes, and is 4"),
    (lambda: QuantizationAware("int8"), GraphError, "quantization must be a Quantization, and is 'int8'"),
    (lambda: EngineOptions(form_seconds="9"), UsageError, "EngineOptions: form_seconds must be a number, and is '9'"),
    (lambda: ServerOptions(port=70000), UsageError, "ServerOptions: port must be from 0 to 65535, and is 70000"),
    (lambda: ServerOptions(max_connections=0), UsageError, "max_connections must be a positive integer, and is 0"),
    (lambda: ServerOptions(head_seconds=0), UsageError, "ServerOptions: head_seconds must be above 0, and is 0"),
]


@pytest.mark.parametrize(("make", "kind", "message"), WRONG, ids=[message[:40] for _, _, message in WRONG])
def test_wrong_fields(make: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


def test_layers_and_models_check_all_their_fields() -> None:
    """A new layer or model whose fields have no check is found here."""
    for selector, configurable in gin.config._REGISTRY.items():
        cls: Any = configurable.wrapped
        ours = selector.startswith(("meshtf.layers.", "meshtf.models."))
        if ours and dataclasses.is_dataclass(cls) and dataclasses.fields(cls):
            assert "check_kinds(self" in inspect.getsource(cls.__post_init__), selector
