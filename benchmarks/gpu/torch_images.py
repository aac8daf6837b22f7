"""Training steps of ResNet-50 and of a Vision Transformer, hand-written in PyTorch as its users write them.

On a GPU the forward and backward passes are compiled, images have the channels last, and float32 products are in TF32
as in the other programs. Images are sent from the host's pinned memory each time. Windows are padded on both sides,
while JAX and meshtf pad like TensorFlow; the amount of work is the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from benchmarks.gpu.jax_sizes import CHANNELS, JaxSizes, first_weights, vit_shapes
from benchmarks.workloads import resnet_sizes

Weights = dict[str, torch.Tensor]
Loss = Callable[[Weights, torch.Tensor, torch.Tensor], torch.Tensor]
"""(weights, images, labels) -> the mean loss."""

_GPU = "cuda"


def resnet_in_torch(device: str) -> Callable[[], torch.Tensor]:
    """ResNet-50's step with SGD, in the sizes of `resnet_sizes`. It returns the loss."""
    weights = {name: _kernel(w, device) for name, w in resnet_sizes.initial_weights().items()}
    averages = {
        each.name: (torch.zeros(each.outs, device=device), torch.ones(each.outs, device=device))
        for each in resnet_sizes.convolutions()
    }

    def loss(own: Weights, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(_resnet_logits(own, averages, images.permute(0, 3, 1, 2)).float(), labels)

    optimizer = torch.optim.SGD(
        [*weights.values()], lr=resnet_sizes.RATE, momentum=resnet_sizes.MOMENTUM, fused=device == _GPU
    )
    images, labels = resnet_sizes.examples()
    dtype: torch.dtype = getattr(torch, images.dtype.name)
    return _trained(loss, weights, optimizer, images.astype(np.float32), labels, dtype)


def vit_in_torch(
    sizes: JaxSizes, patch: int, images: np.ndarray, labels: np.ndarray, device: str
) -> Callable[[], torch.Tensor]:
    """A Vision Transformer's step with AdamW, with random weights. It returns the loss.

    Args:
      sizes: the sizes. `vocab` is the number of classes, and `length` counts patches and the class token.
      patch: the pixels on each side of a patch.
      images: [batch, side, side, 3].
      labels: int32 [batch].
      device: "cuda" or "cpu".
    """
    first = first_weights(vit_shapes(sizes, patch))
    weights = {name: torch.tensor(w, device=device).requires_grad_() for name, w in first.items()}

    def loss(own: Weights, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(_vit_logits(sizes, patch, own, images).float(), labels)

    optimizer = torch.optim.AdamW(
        [*weights.values()], lr=1e-4, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01, fused=device == _GPU
    )
    dtype: torch.dtype = getattr(torch, sizes.dtype)
    return _trained(loss, weights, optimizer, images.astype(np.float32), labels, dtype)


def _kernel(weight: np.ndarray, device: str) -> torch.Tensor:
    """Converts a kernel [height, width, inputs, outputs] to PyTorch's order, channels last; copies other weights."""
    own = torch.tensor(weight, device=device)
    if weight.ndim == 4:
        own = own.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return own.requires_grad_()


def _trained(
    loss: Loss,
    weights: Weights,
    optimizer: torch.optim.Optimizer,
    images: np.ndarray,
    labels: np.ndarray,
    dtype: torch.dtype,
) -> Callable[[], torch.Tensor]:
    """A training step that always uses the same batch."""
    device = next(iter(weights.values())).device
    is_gpu = device.type == _GPU
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    batch = [torch.from_numpy(images).to(dtype), torch.from_numpy(labels).long()]
    batch = [x.pin_memory() for x in batch] if is_gpu else batch
    loss = torch.compile(loss) if is_gpu else loss

    def run() -> torch.Tensor:
        value = loss(weights, *(x.to(device, non_blocking=True) for x in batch))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        return value.detach()

    return run


def _resnet_logits(w: Weights, averages: dict[str, tuple[torch.Tensor, torch.Tensor]], x: torch.Tensor) -> torch.Tensor:
    """[batch, channels, height, width] -> [batch, classes]."""
    momentum = 1 - resnet_sizes.BATCH_NORM_MOMENTUM

    def convolved(x: torch.Tensor, own: resnet_sizes.Convolution) -> torch.Tensor:
        kernel = w[f"{own.name}/conv2d/kernel"].to(x.dtype)
        y = functional.conv2d(x, kernel, None, own.stride, own.size // 2)
        scale, bias = (w[f"{own.name}/batch_norm/{name}"] for name in ("scale", "bias"))
        return functional.batch_norm(y, *averages[own.name], scale, bias, True, momentum, resnet_sizes.EPSILON)

    x = functional.max_pool2d(functional.relu(convolved(x, resnet_sizes.STEM)), 3, 2, 1)
    for block in resnet_sizes.blocks():
        reduce, convolve, expand = block.convolutions
        y = functional.relu(convolved(functional.relu(convolved(x, reduce)), convolve))
        x = functional.relu(convolved(y, expand) + (x if block.shortcut is None else convolved(x, block.shortcut)))
    return x.mean((2, 3)) @ w["logits/kernel"].to(x.dtype) + w["logits/bias"].to(x.dtype)


def _vit_logits(sizes: JaxSizes, patch: int, weights: Weights, images: torch.Tensor) -> torch.Tensor:
    """[batch, side, side, 3] -> [batch, classes]."""
    w = {name: x if "norm" in name else x.to(images.dtype) for name, x in weights.items()}
    batch, across = len(images), images.shape[1] // patch
    cut = images.reshape(batch, across, patch, across, patch, CHANNELS).swapaxes(2, 3).reshape(batch, across**2, -1)
    x = cut @ w["patches"] + w["patches_bias"]
    x = torch.cat([w["class_token"].expand(batch, 1, -1), x], 1) + w["positions"]
    for number in range(sizes.layers):
        layer = {name.removeprefix("layer_"): x[number] for name, x in w.items() if name.startswith("layer_")}
        x = _layer(x, layer)
    return _normalized(x, w["norm"])[:, 0] @ w["logits"] + w["logits_bias"]


def _layer(x: torch.Tensor, w: Weights) -> torch.Tensor:
    h = _normalized(x, w["norm_1"])
    q, k, v = torch.einsum("bld,dthk->tbhlk", h, w["qkv"]) + w["qkv_bias"][:, None, :, None]
    attended = functional.scaled_dot_product_attention(q, k, v)
    x = x + torch.einsum("bhlk,hkd->bld", attended, w["out"]) + w["out_bias"]
    hidden = functional.gelu(_normalized(x, w["norm_2"]) @ w["wi"] + w["wi_bias"], approximate="tanh")
    return x + hidden @ w["wo"] + w["wo_bias"]


def _normalized(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x.float(), scale.shape, scale).to(x.dtype)
