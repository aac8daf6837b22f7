"""Has Transformers compute in float64, also where its code asks for float32, as norms, softmaxes and positions do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _Widening(TorchFunctionMode):
    """Replaces float32 by float64 in every call of PyTorch."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        return func(*map(_wide, args), **{name: _wide(value) for name, value in (kwargs or {}).items()})


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def in_both_precisions(model: Any, **fed: Any) -> tuple[torch.Tensor, float]:
    """The logits in float64, and by how much those in float32 differ at most.

    The model ends in float64. GPT-2's `reorder_and_upcast_attn` asks for float32 by name; it has float32 alone.
    """
    with torch.no_grad():
        short = model.float()(**fed).logits.double()
        if getattr(model.config, "reorder_and_upcast_attn", False):
            return short, 0.0
        fed = {name: _wide_tensor(value) for name, value in fed.items()}
        with _Widening():
            exact = model.double()(**fed).logits
    return exact, float((exact - short).abs().max())


def _wide_tensor(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
