"""Cases of mixtures of experts, beside all experts applied to all tokens in TensorFlow."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import AttentionMask, Tokens
from meshtf.layers.moe import (
    Capacity,
    ExpertChoiceRouter,
    GatherDispatch,
    MixtureOfExperts,
    ProductDispatch,
    SwitchRouter,
    Top2Router,
    TopNRouter,
)
from meshtf.layers.transformer import Context
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.cases.layer_stacks import new_variables

_CLEAR = 1e-3


def mixture_of_experts(name: str) -> Case:
    def case(b: Builder) -> None:
        batch, length = b.new_dim(b.rng.choice([1, 2, 4, 6])), b.new_dim(b.rng.choice([1, 2, 3, 4]))
        d_model, num_experts = b.new_dim(b.rng.choice([2, 4])), b.rng.choice([2, 3, 4, 6])
        router = {
            "switch": SwitchRouter(),
            "top 2": Top2Router(),
            "top n": TopNRouter(b.rng.randint(1, num_experts), b.chance(0.5)),
            "expert choice": ExpertChoiceRouter(1),
        }[name]
        capacity = None if b.chance(0.4) and name != "expert choice" else Capacity(b.rng.choice([1.0, 1.5, 4.0]))
        dispatch = b.rng.choice([GatherDispatch(), ProductDispatch()])
        if capacity is not None and length.size * router.num_choices * capacity.factor < num_experts:
            raise RejectedError  # less than one place
        layer = MixtureOfExperts(num_experts, 3, router, capacity=capacity, dispatch=dispatch, activation="tanh")
        x = b.fresh(mtf.Shape([batch, length, d_model]), tf.float32)  # the router works in float32
        segments = b.fresh(mtf.Shape([batch, length]), tf.int32, 0, 2) if b.chance(0.4) else None
        known, tokens = set(b.mesh.graph.variables), Tokens(segments=None if segments is None else segments.tensor)
        with mtf.variable_scope(f"{batch.name}_experts"):
            z = layer(x.tensor, Context(AttentionMask(), tokens))
        made = new_variables(b, known)
        weights = [next(n for own, n in made.items() if part in own) for part in ("router", "/wi/", "/wo/")]
        is_routed = np.ones(x.shape.to_integer_list[:2], bool) if segments is None else segments.array != 0
        places = layer.places(length.size, is_training=False)
        gates = np.asarray(tf.nn.softmax(tf.einsum("bld,de->ble", x.value, weights[0].value)))
        if np.min(np.diff(np.sort(gates, -1), axis=-1), initial=1.0) < _CLEAR or not _is_clear(gates):
            raise RejectedError
        takes, chosen = _routed(name, gates, is_routed, router.num_choices, places)
        is_normalized = name == "top 2" or (isinstance(router, TopNRouter) and router.is_normalized)

        def reference(p: tf.Tensor, gate: tf.Tensor, wi: tf.Tensor, wo: tf.Tensor, *_: tf.Tensor) -> tf.Tensor:
            own = tf.nn.softmax(tf.einsum("bld,de->ble", p, gate))
            if is_normalized:
                total = tf.reduce_sum(tf.where(chosen, own, 0.0), -1, keepdims=True)
                own = own / tf.where(total > 0, total, 1.0)
            hidden = tf.tanh(tf.einsum("bld,edf->blef", p, wi))
            return tf.einsum("blef,efd,ble->bld", hidden, wo, tf.where(takes, own, 0.0))

        inputs = [x, *weights, *([] if segments is None else [segments])]
        b.step(f"mixture_of_experts[{layer}]", inputs, z, reference)

    return case


def _is_clear(gates: np.ndarray) -> bool:
    """Whether no expert finds two tokens of a group about as probable."""
    return bool(np.min(np.diff(np.sort(gates, 1), axis=1), initial=1.0) > _CLEAR)


def _routed(
    name: str, gates: np.ndarray, is_routed: np.ndarray, num_choices: int, places: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Which token is given a place with which expert, and which it named: bool [batch, length, experts]."""
    takes, chosen = np.zeros(gates.shape, bool), np.zeros(gates.shape, bool)
    for row, length in enumerate(is_routed):
        if name == "expert choice":
            for expert in range(gates.shape[-1]):
                ranked = np.argsort(-np.where(length, gates[row, :, expert], -1.0), kind="stable")[:places]
                takes[row, [token for token in ranked if length[token]], expert] = True
            continue
        order = np.argsort(-gates[row], -1, kind="stable")[:, :num_choices]
        taken = np.zeros(gates.shape[-1], int)
        for choice in range(num_choices):
            for token in np.flatnonzero(length):
                expert = order[token, choice]
                chosen[row, token, expert] = True
                takes[row, token, expert] = places is None or taken[expert] < places
                taken[expert] += 1
    return takes, chosen


CASES: dict[str, Case] = {
    f"mixture_of_experts {name}": mixture_of_experts(name) for name in ("switch", "top 2", "top n", "expert choice")
}
