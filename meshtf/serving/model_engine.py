"""The engine: a thread that runs one step after the other on a trained model."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable

import numpy as np

from meshtf.errors import counted
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.serving.engine import (
    EngineBusyError,
    EngineLimits,
    EngineStatus,
    Finish,
    GenerationRequest,
    Listener,
    RequestError,
)
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.generation import Generation
from meshtf.serving.request_check import check_ids, check_request
from meshtf.serving.row_choice import RowChoice
from meshtf.serving.scheduler import Reads, Scheduler, step_arrays
from meshtf.serving.step_program import StepSizes, step_program
from meshtf.train.decoding.programs import LOG_LIKELIHOODS, greatest_sizes, scoring_program, vocabulary_of
from meshtf.train.decoding.step_decoder import PromptStarter
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.saved_weights import Weights
from meshtf.train.training import Training

MOST_FAILURES = 3
"""The number of failed steps in a row after which the engine closes."""

_FAILED = "the step of the model failed: {error}"


class ModelEngine:
    """An `Engine` on a trained language model. Build it, `restore` a checkpoint, and `start` it.

    Args:
      training: the training of the model.
      mesh_impl: the mesh, its devices and the layout.
      options: the sizes of the engine.

    Raises:
      ConfigurationError: if the model is no language model.
      GraphError: if the model cannot read prompts in parts.
      LayoutError: if the layout does not fit.
    """

    def __init__(self, training: Training, mesh_impl: MeshImpl, options: EngineOptions = EngineOptions()) -> None:  # noqa: B008
        greatest, vocabulary = greatest_sizes(training), vocabulary_of(training)
        cores = mesh_impl.shape.size
        num_pages = options.pages(greatest.targets)
        likeliest = min(options.max_likeliest, vocabulary.size)
        self._limits = EngineLimits(greatest.targets, vocabulary.size, likeliest)
        model = training.model
        self._start_id = model.start_id if isinstance(model, PromptStarter) else 0
        self._starts_prompts = not isinstance(model, PromptStarter) or model.starts_prompts
        self._score_rows = cores
        self._forward = scoring_program(training, mesh_impl, dataclasses.replace(greatest, batch=cores))
        self._decode, self._read = (
            StepSizes(
                tokens=_multiple(options.num_rows + prompt_tokens, cores),
                rows=_multiple(options.num_rows, cores),
                length=greatest.targets,
                pages=options.pages_for(greatest.targets),
                page_size=options.page_size,
                num_pages=num_pages,
                num_likeliest=likeliest,
            )
            for prompt_tokens in (0, options.num_prompt_tokens)
        )
        self.programs = {
            sizes: step_program(training, mesh_impl, sizes, self._forward.variables)
            for sizes in (self._decode, self._read)
        }
        self._options = options
        self._scheduler = Scheduler(options, num_pages)
        self._numbers = itertools.count(1)
        self._known: dict[int, Generation] = {}
        self._jobs: list[tuple[Callable[[], list[float]], concurrent.futures.Future[list[float]]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_draining = self._is_closed = False
        self._num_failures = 0

    def restore(self, folder: RunFolder, step: int | None = None, weights: Weights | str = Weights.TRAINED) -> int:
        """Gives the model its values in a checkpoint. Returns the step of the checkpoint."""
        return folder.restore(self._forward, step=step, weights=weights)

    def start(self) -> None:
        """Makes the cache, compiles both programs by a step that reads nothing, and starts the engine's thread."""
        for sizes, program in self.programs.items():
            program(**sizes.empty())
        self._thread = threading.Thread(target=self._run, name="meshtf-engine", daemon=True)
        self._thread.start()

    @property
    def limits(self) -> EngineLimits:
        return self._limits

    def submit(self, request: GenerationRequest, listener: Listener) -> int:
        """Queues a generation, and returns its number. See `Engine.submit`."""
        check_request(request, self._limits, self._scheduler.pool.num_pages, self._options.page_size)
        starts = self._starts_prompts or not request.prompt
        tokens = [*([self._start_id] if starts else []), *request.prompt]
        with self._changed:
            if self._is_draining or self._is_closed:
                raise EngineBusyError("the engine takes no more requests")
            if len(self._scheduler.queue) >= self._options.queue_length:
                raise EngineBusyError(f"the queue has {counted(self._options.queue_length, 'request')}, and is full")
            choice = RowChoice.of(request, self._limits.vocab_size)
            one = Generation(next(self._numbers), request, listener, choice, tokens, len(tokens))
            self._known[one.number] = one
            self._scheduler.queue.add(request.client, one)
            self._changed.notify_all()
            return one.number

    def cancel(self, number: int) -> None:
        """Ends a generation early. Does nothing if it has ended."""
        with self._changed:
            if number in self._known:
                self._known[number].is_cancelled = True
                self._changed.notify_all()

    def score(self, ids: tuple[int, ...]) -> list[float]:
        """Returns the log-likelihood of each token of a sequence, in nats. See `Engine.score`."""
        check_ids(ids, self._limits.vocab_size, "the text")
        if len(ids) > self._limits.max_length:
            raise RequestError(
                f"the text has {counted(len(ids), 'token')}, and may have {self._limits.max_length} at most"
            )
        found: concurrent.futures.Future[list[float]] = concurrent.futures.Future()
        with self._changed:
            if self._is_closed:
                raise EngineBusyError("the engine takes no more requests")
            self._jobs.append((lambda: self._scores(ids), found))
            self._changed.notify_all()
        return found.result()

    def status(self) -> EngineStatus:
        with self._changed:
            return self._scheduler.status()

    def drain(self, seconds: float) -> bool:
        """Takes no more requests, and waits until all have ended. See `Engine.drain`."""
        end = time.monotonic() + seconds
        with self._changed:
            self._is_draining = True
            is_done = self._changed.wait_for(lambda: not self._known, max(0.0, end - time.monotonic()))
            for one in self._known.values():
                one.is_cancelled = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._known or self._thread is None)
            return is_done

    def close(self) -> None:
        """Cancels everything, and ends the engine's thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Makes one step, if there is work, and waits for work otherwise. Returns False when the engine is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._scheduler.has_work or self._jobs or self._is_closed)
            if self._is_closed:
                self._end_all()
                return False
            jobs, self._jobs = self._jobs, []
            self._tell(self._scheduler.ended_early())
            self._scheduler.admit()
            reads = self._scheduler.reads()
        for job, found in jobs:
            try:
                found.set_result(job())
            except Exception as error:
                found.set_exception(error)
        if reads:
            self._step(reads)
        return True

    def _step(self, reads: Reads) -> None:
        count = sum(each for _, each in reads)
        sizes = self._decode if count <= self._decode.tokens else self._read
        try:
            results = {name: x.numpy() for name, x in self.programs[sizes](**step_arrays(reads, sizes)).items()}
        except Exception as error:
            self._fail(_FAILED.format(error=error))
            return
        with self._changed:
            self._num_failures = 0
            self._tell(self._scheduler.done(reads, results))

    def _fail(self, message: str) -> None:
        """Ends all of the batch, and goes on with an empty cache; closes the engine after several failures."""
        with self._changed:
            self._num_failures += 1
            for one in self._scheduler.restart():
                del self._known[one.number]
                _call(one.listener.failed, message)
            if self._num_failures >= MOST_FAILURES:
                self._is_closed = True
            self._changed.notify_all()

    def _end_all(self) -> None:
        for one in self._known.values():
            one.is_cancelled = True
        self._tell(self._scheduler.ended_early())
        for _, found in self._jobs:
            found.set_exception(EngineBusyError("the engine was closed"))
        self._jobs = []

    def _tell(self, ended: list[tuple[Generation, Finish]]) -> None:
        for one, reason in ended:
            del self._known[one.number]
            _call(one.listener.finished, reason)
        self._changed.notify_all()

    def _scores(self, ids: tuple[int, ...]) -> list[float]:
        targets = np.zeros([self._score_rows, self._limits.max_length], np.int32)
        weights = np.zeros(targets.shape, np.float32)
        targets[0, : len(ids)], weights[0, : len(ids)] = ids, 1.0
        found = self._forward(targets=targets, targets_weights=weights)[LOG_LIKELIHOODS]
        return [float(x) for x in found.numpy()[0, : len(ids)]]


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def _call(fn: Callable[..., None], *arguments: object) -> None:
    """Calls a listener, whose faults are its own."""
    with contextlib.suppress(Exception):
        fn(*arguments)
