"""Measures whether training steps wait for their input: batches of text, alone and together with steps of a given time.

    python -m benchmarks.input_pipeline --step_ms 50

For each objective it prints batches per second without other work. Then it prints the share of time for which training
waits for its next batch. Some steps leave the host's cores free, like steps on an accelerator. Others keep all cores
busy, like training on virtual CPUs. A control repeats one prepared batch: it waits only for `next` itself, and for
other work of the machine. The text is the source of Python's library, in bytes, or in pieces of a SentencePiece model.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator

import tensorflow as tf

from benchmarks.measuring.machine import machine
from meshtf.train.data import (
    ByteVocabulary,
    Concatenate,
    LanguageModel,
    MaskedLanguageModel,
    Pack,
    PrefixLanguageModel,
    SentencePieceVocabulary,
    SpanCorruption,
    TextTask,
    Vocabulary,
    python_library,
)
from meshtf.train.data.arrangement import Arrangement
from meshtf.train.data.objectives.objective import Objective
from meshtf.train.data.shuffled_batches import READY_BATCHES
from meshtf.train.task import Batch

EXTRA_IDS = 100
WARM_UP = 3  # batches and steps
MATRIX_SIZE = 512
CONTROL = "one batch, repeated"

CASES: dict[str, tuple[Objective, Arrangement]] = {
    "language model": (LanguageModel(), Concatenate()),
    "language model, segments": (LanguageModel(), Concatenate(separate_documents=True)),
    "language model, packed": (LanguageModel(), Pack()),
    "prefix language model": (PrefixLanguageModel(), Concatenate()),
    "span corruption": (SpanCorruption(), Concatenate()),
    "masked language model": (MaskedLanguageModel(), Concatenate()),
}


def batches_per_second(batches: Iterator[Batch], count: int) -> float:
    for _ in itertools.islice(batches, WARM_UP):
        pass
    began = time.perf_counter()
    for _ in itertools.islice(batches, count):
        pass
    return count / (time.perf_counter() - began)


def share_waited(batches: Iterator[Batch], count: int, step: Callable[[], object]) -> float:
    """The share of the time of `count` steps that is spent on `next`."""
    waited = began = 0.0
    for number in range(-WARM_UP, count):
        if number == 0:
            waited, began = 0.0, time.perf_counter()
        asked = time.perf_counter()
        next(batches)
        waited += time.perf_counter() - asked
        step()
    return waited / (time.perf_counter() - began)


def busy_step(seconds: float) -> Callable[[], object]:
    """A step of matrix products on all cores that takes about this many seconds."""
    matrix = tf.random.stateless_normal([MATRIX_SIZE, MATRIX_SIZE], [0, 0])

    @tf.function
    def products(count: tf.Tensor) -> tf.Tensor:
        result = matrix
        for _ in tf.range(count):
            result = tf.matmul(result, matrix) / MATRIX_SIZE
        return tf.reduce_sum(result)

    def time_of(count: int) -> float:
        began = time.perf_counter()
        float(products(tf.constant(count)))
        return time.perf_counter() - began

    time_of(1)
    count = max(1, round(20 * seconds / time_of(20)))
    return lambda: float(products(tf.constant(count)))


def one_batch_again_and_again(batch: Batch) -> Iterator[Batch]:
    return iter(tf.data.Dataset.from_tensors(batch).repeat().prefetch(READY_BATCHES))


def lengths_of(objective: Objective, length: int) -> dict[str, int]:
    """The lengths of inputs and targets. Targets have room for the spans that are removed from the inputs."""
    lengths = dict.fromkeys(objective.sequences, length)
    if isinstance(objective, SpanCorruption):
        longest = objective.limits([length, length])
        lengths = dict(zip(objective.sequences, objective.lengths(longest), strict=True))
    return lengths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--step_ms", type=float, default=50.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--sentencepiece", metavar="FILE", help="a SentencePiece model, in place of bytes")
    arguments = parser.parse_args()
    vocabulary: Vocabulary = ByteVocabulary(EXTRA_IDS)
    if arguments.sentencepiece:
        vocabulary = SentencePieceVocabulary(arguments.sentencepiece, EXTRA_IDS)
    size, steps, seconds = arguments.batch_size, arguments.steps, arguments.step_ms / 1e3
    began = time.perf_counter()
    description = TextTask(python_library(), vocabulary, LanguageModel(), arguments.length)
    print(machine())
    print(f"{description}; read in {time.perf_counter() - began:.1f} s")
    print(f"batches of {size} rows of {arguments.length} tokens, steps of {arguments.step_ms:g} ms")
    columns = ("batches/s", "tokens/s", "waits, cores free", "waits, cores busy")
    print(f"{'objective':26}" + "".join(f"{column:>20}" for column in columns))
    busy = busy_step(seconds)

    def show(name: str, batches: Callable[[], Iterator[Batch]], tokens_per_batch: int) -> None:
        speed = batches_per_second(batches(), steps)
        free = share_waited(batches(), steps, lambda: time.sleep(seconds))
        loaded = share_waited(batches(), steps, busy)
        print(f"{name:26}{speed:20,.0f}{speed * tokens_per_batch:20,.0f}{free:20.2%}{loaded:20.2%}", flush=True)

    for name, (objective, arrangement) in CASES.items():
        task = TextTask(python_library(), vocabulary, objective, lengths_of(objective, arguments.length), arrangement)
        show(name, lambda task=task: task.training_batches(size, seed=0), task.tokens_per_example * size)
    show(CONTROL, lambda: one_batch_again_and_again(next(task.training_batches(size, seed=0))), 0)


if __name__ == "__main__":
    main()
