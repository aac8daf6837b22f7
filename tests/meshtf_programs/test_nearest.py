"""What is proposed for a missing name: what was meant, in this library's words, and never what merely looks alike."""

from __future__ import annotations

import types

import pytest

import meshtf as mtf
from meshtf_programs.gin_names import unknown_configurable
from meshtf_programs.nearest import nearest, nearest_public

MEANT: list[tuple[types.ModuleType, dict[str, list[str]]]] = [
    (mtf, {
        # Misspellings
        "eisnum": ["einsum"], "reduce_sumn": ["reduce_sum"], "Dimesion": ["Dimension"], "matmull": ["matmul"],
        "is_nann": ["is_nan"], "reul": ["relu"], "softmx": ["softmax"], "con2d": ["conv2d"], "tensorr": ["Tensor"],
        "get_variabl": ["get_variable"], "max_poool": ["max_pool"], "reduce_varience": ["reduce_variance"],
        # Other ways to write a name, and names with words missing
        "isnan": ["is_nan"], "ReduceSum": ["reduce_sum"], "getVariable": ["get_variable"], "tensor": ["Tensor"],
        "normal": ["random_normal"], "loop": ["while_loop"],
        # Other libraries' words
        "var": ["reduce_variance"], "reduce_var": ["reduce_variance"], "std": ["reduce_std"], "sum": ["reduce_sum"],
        "dot": ["einsum"], "permute": ["transpose"], "expand_dims": ["reshape", "broadcast"], "cat": ["concat"],
        "unsqueeze": ["reshape", "broadcast"], "squeeze": ["reshape"], "select": ["where"], "clip": ["clip_by_value"],
        "logsumexp": ["reduce_logsumexp"], "arange": ["range"], "grad": ["gradients"], "jit": ["function"],
        "linear": ["mtf.layers.dense"], "batch_norm": ["mtf.layers.batch_norm"], "Linear": ["mtf.layers.dense"],
        "cross_entropy": ["mtf.layers.softmax_cross_entropy_with_logits"],
        "value_and_grad": ["gradients"], "custom_vjp": ["custom_gradient"], "pjit": ["function"], "float32": ["f32"],
        "PartitionSpec": ["LayoutRules"], "make_mesh": ["SpmdMeshImpl"], "stop_grad": ["stop_gradient"],
        "detach": ["stop_gradient"], "full_like": ["fill"],
        # Likeness alone
        "selo": [], "reduce_med": [], "is_man": [], "sinc": [], "zzzzzz": [], "kron": [],
    }),
    (mtf.layers, {
        "densee": ["dense"], "LayerNorm": ["layer_norm"], "layernorm": ["layer_norm"], "BatchNorm2d": ["batch_norm"],
        "relu": ["mtf.relu"], "multi_head_attention": ["dot_product_attention"], "embeding": ["embedding"],
        "lin": [],
    }),
    (mtf.optimize, {
        "Adam": ["AdamOptimizer", "AdamWOptimizer"], "SGD": ["SgdOptimizer"], "Lion": ["LionOptimizer"],
        "cosine_decay": ["CosineSchedule"], "AdamWOptimiser": ["AdamWOptimizer"], "RMSProp": [],
    }),
    (mtf.models, {
        "BERT": ["MaskedLM"], "GPT": ["TransformerLM"], "MLP": ["MLPClassifier"], "Resnet": ["ResNet"],
        "TransfomerLM": ["TransformerLM"], "Diffusion": [], "ViT": ["VisionTransformer"],
    }),
]  # fmt: skip


def test_what_is_proposed_for_a_missing_name() -> None:
    found = {f"{module.__name__}.{name}": _proposed(module, name) for module, searches in MEANT for name in searches}
    meant = {f"{module.__name__}.{name}": names for module, searches in MEANT for name, names in searches.items()}
    assert found == meant


def _proposed(module: types.ModuleType, name: str) -> list[str]:
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    fact, _, hint = str(caught.value).partition("; did you mean ")
    assert fact == f"module {module.__name__!r} has no attribute {name!r}"
    return hint.removesuffix("?").replace('"', "").split(" or ") if hint else []


def test_names_of_the_original_look_like_nothing() -> None:
    """Without the functions that were added since, `is_nan` is not `scan`, and `norm` is no `Tensor`."""
    names = ["scan", "Tensor", "selu", "reduce_max", "mod", "round", "floor", "equal", "shift"]
    for name in ("is_nan", "norm", "silu", "reduce_var", "model", "flow", "equip", "split"):
        assert nearest_public(name, names) == ""


def test_configurables_of_gin_files() -> None:
    known = ["AdamWOptimizer", "TransformerLM", "WarmUpSchedule"]
    assert unknown_configurable("AdamW", known).endswith('; did you mean "AdamWOptimizer"?')
    assert unknown_configurable("meshtf.models.GPT", known).endswith('; did you mean "TransformerLM"?')
    assert unknown_configurable("train/dense", known).endswith("imported in the gin file")


def test_words_of_users_may_be_any() -> None:
    assert nearest("vocabulary", ["vocab", "batch"]) == '; did you mean "vocab"?'
    assert nearest("x", ["vocab", "batch"]) == ""
