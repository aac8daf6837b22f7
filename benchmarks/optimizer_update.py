"""Compares the update of a few large variables with TensorFlow's fused ResourceApply operations, on one device.

    python -m benchmarks.optimizer_update

Weights, gradients and state are variables in both programs, so that only the update is timed. TensorFlow has no fused
AdamW: its row is Adam, which does less work. It has no Lion, LAMB and Adafactor either. They are compared with a
hand-written update, compiled by XLA if that is faster.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from meshtf import optimize

LEARNING_RATE, BETA_1, BETA_2, EPSILON, MOMENTUM = 1e-3, 0.9, 0.999, 1e-8, 0.9

Update = Callable[[tf.Variable, list[tf.Variable], tf.Tensor], object]
Program = Callable[[], object]


def apply_adam(variable: tf.Variable, state: list[tf.Variable], grad: tf.Tensor) -> object:
    return tf.raw_ops.ResourceApplyAdam(
        var=variable.handle,
        m=state[0].handle,
        v=state[1].handle,
        beta1_power=BETA_1,
        beta2_power=BETA_2,
        lr=LEARNING_RATE,
        beta1=BETA_1,
        beta2=BETA_2,
        epsilon=EPSILON,
        grad=grad,
    )


def apply_momentum(variable: tf.Variable, state: list[tf.Variable], grad: tf.Tensor) -> object:
    return tf.raw_ops.ResourceApplyKerasMomentum(
        var=variable.handle, accum=state[0].handle, lr=LEARNING_RATE, grad=grad, momentum=MOMENTUM
    )


def apply_gradient_descent(variable: tf.Variable, state: list[tf.Variable], grad: tf.Tensor) -> object:
    return tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=LEARNING_RATE, delta=grad)


def apply_lion(variable: tf.Variable, state: list[tf.Variable], grad: tf.Tensor) -> object:
    direction = tf.sign(BETA_1 * state[0] + (1 - BETA_1) * grad)
    return (
        variable.assign_sub(LEARNING_RATE * direction),
        state[0].assign(BETA_2 * state[0] + (1 - BETA_2) * grad),
    )


def apply_lamb(variable: tf.Variable, state: list[tf.Variable], grad: tf.Tensor) -> object:
    mean = state[0].assign(BETA_1 * state[0] + (1 - BETA_1) * grad)
    square = state[1].assign(BETA_2 * state[1] + (1 - BETA_2) * grad * grad)
    # Bias corrections are two numbers that depend on the step. Here they are constants.
    direction = mean / (1 - BETA_1) / (tf.sqrt(square / (1 - BETA_2)) + EPSILON)
    return variable.assign_sub(LEARNING_RATE * tf.norm(variable) / tf.norm(direction) * direction)


def apply_adafactor(variable: tf.Variable, state: list[tf.Variable], grad: tf.Tensor) -> object:
    squares = grad * grad + 1e-30
    rows = state[0].assign(BETA_2 * state[0] + (1 - BETA_2) * tf.reduce_mean(squares, 1, keepdims=True))
    columns = state[1].assign(BETA_2 * state[1] + (1 - BETA_2) * tf.reduce_mean(squares, 0, keepdims=True))
    direction = grad * tf.math.rsqrt(rows / tf.reduce_mean(rows)) * tf.math.rsqrt(columns)
    size, length = (tf.sqrt(tf.reduce_mean(tf.square(x))) for x in (variable, direction))
    return variable.assign_sub(LEARNING_RATE * tf.maximum(size, 1e-3) / tf.maximum(length, 1.0) * direction)


def like_the_weight(rows: int, columns: int) -> list[list[int]]:
    return [[rows, columns]] * 2


def factored(rows: int, columns: int) -> list[list[int]]:
    return [[rows, 1], [1, columns]]


@dataclasses.dataclass(frozen=True)
class Rule:
    """An update in meshtf, and in TensorFlow with a fused operation or hand-written."""

    optimizer: optimize.Optimizer
    update: Update
    state_shapes: Callable[[int, int], list[list[int]]] = like_the_weight
    is_compiled: bool = False


RULES = {
    "adamw": Rule(optimize.AdamWOptimizer(LEARNING_RATE, BETA_1, BETA_2, EPSILON), apply_adam),
    "adam": Rule(optimize.AdamOptimizer(LEARNING_RATE, BETA_1, BETA_2, EPSILON), apply_adam),
    "momentum": Rule(optimize.MomentumOptimizer(LEARNING_RATE, MOMENTUM), apply_momentum),
    "sgd": Rule(optimize.SgdOptimizer(LEARNING_RATE), apply_gradient_descent),
    "lion": Rule(optimize.LionOptimizer(LEARNING_RATE, BETA_1, BETA_2), apply_lion, is_compiled=True),
    "lamb": Rule(optimize.LambOptimizer(LEARNING_RATE, BETA_1, BETA_2, EPSILON), apply_lamb),
    "adafactor": Rule(optimize.AdafactorOptimizer(LEARNING_RATE), apply_adafactor, factored),
}


def by_tensorflow(rule: Rule, rows: int, columns: int, count: int) -> Program:
    shape = [rows, columns]
    grads = [tf.Variable(tf.random.normal(shape)) for _ in range(count)]
    weights = [tf.Variable(tf.random.normal(shape)) for _ in range(count)]
    states = [[tf.Variable(tf.zeros(s)) for s in rule.state_shapes(rows, columns)] for _ in range(count)]

    @tf.function(autograph=False, jit_compile=rule.is_compiled)
    def step() -> None:
        for weight, state, grad in zip(weights, states, grads, strict=True):
            rule.update(weight, state, tf.convert_to_tensor(grad))

    return step


def by_meshtf(optimizer: optimize.Optimizer, rows: int, columns: int, count: int) -> Program:
    shape = [("rows", rows), ("columns", columns)]

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        normal = mtf.RandomNormal()
        grads = [mtf.get_variable(mesh, f"grad_{i}", shape, initializer=normal, trainable=False) for i in range(count)]
        for i in range(count):
            mtf.get_variable(mesh, f"weight_{i}", shape, initializer=normal)
        optimizer.apply_grads(grads, mesh.graph.trainable_variables)
        return mtf.zeros(mesh, [])

    return mtf.function(step, mtf.SpmdMeshImpl("all:1", ""))


def medians(programs: list[Program], steps: int, rounds: int) -> list[float]:
    """The median milliseconds of a step of each program. The programs take turns."""
    times: list[list[float]] = [[] for _ in programs]
    for program in programs:
        program()
    for _ in range(rounds):
        for program, own in zip(programs, times, strict=True):
            for _ in range(steps):
                began = time.perf_counter()
                program()
                own.append(time.perf_counter() - began)
    return [statistics.median(own) * 1e3 for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--variables", type=int, default=4)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--steps", type=int, default=10, help="of each program in a round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    size = (arguments.rows, arguments.columns, arguments.variables)
    print(f"{machine()}; {size[2]} variables of {size[0]} x {size[1]} float32")
    print(f"{'rule':10}{'TensorFlow ms':>18}{'meshtf ms':>12}{'ratio':>8}")
    for name in arguments.rules:
        programs = [by_tensorflow(RULES[name], *size), by_meshtf(RULES[name].optimizer, *size)]
        fused, own = medians(programs, arguments.steps, arguments.rounds)
        print(f"{name:10}{fused:18.2f}{own:12.2f}{own / fused:8.2f}", flush=True)


if __name__ == "__main__":
    main()
