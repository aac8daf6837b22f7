"""meshtf-serve: serves a trained model over HTTP, from a checkpoint of its run."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from meshtf.bin.shared.cluster import wants_cluster
from meshtf.bin.shared.configuration_flags import mesh_bindings
from meshtf.bin.shared.mesh import mesh_for
from meshtf.bin.shared.peak_memory import say_peak_memory
from meshtf.bin.shared.run_program import run_program
from meshtf.cluster.environments import addresses_from
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.engine_programs import EnginePrograms
from meshtf.serving.http.chat_template import ChatTemplate
from meshtf.serving.http.server_options import ServerOptions, heard_signals
from meshtf.serving.model_engine import ModelEngine
from meshtf.serving.step_relay import StepReceiver, StepSender, unpacked
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read
from meshtf.train.data.vocabularies.huggingface_vocabulary import HuggingFaceVocabulary
from meshtf.train.decoding.options import configured_decoding
from meshtf.train.decoding.programs import greatest_sizes, vocabulary_of
from meshtf.train.runs.run_folder import RunFolder
from meshtf_programs.command_lines.serve import PROGRAM, command_line, with_run
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.user_paths import user_path

if TYPE_CHECKING:
    from meshtf.serving.http.served_model import ServedModel

_PACKAGES = ("starlette", "uvicorn", "prometheus_client", "jinja2")
_MISSING = """\
{program} needs the packages {names}, which are not installed: pip install 'meshtf[serve]'"""
_TWO_TOKENS = "--token and --token_file are both given; leave one out"
_NO_TOKEN = "--token_file={path} must have exactly one non-empty line, of letters, digits and signs of ASCII"
_BAD_TOKEN = "--token must be letters, digits and signs of ASCII, without spaces: a header can hold no others"
_OPEN = """\
{program}: everyone who reaches {host} may use this server; --token_file=FILE asks them for a token"""

_ORIGINAL = "original"
"""The folder of an import that has the tokenizer's files."""

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Serves until a signal comes, and returns the exit status."""
    return run_program(command_line(), prepare, with_run(arguments))


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, takes the port, builds the engine, and restores the checkpoint."""
    _check_packages()
    options = server_options(values)
    folder = RunFolder.existing(values.model_dir)
    training = folder.read_training([*values.gin_param, *mesh_bindings(values)], trust_config=values.trust_config)
    greatest_sizes(training)
    vocabulary = vocabulary_of(training)
    template = chat_template(values, folder, vocabulary)
    stops = configured_decoding().stops(vocabulary)
    from meshtf.serving.http.served_model import ServedModel
    from meshtf.serving.http.server import bound_socket

    leads = not wants_cluster(values) or addresses_from(os.environ).process_index == 0
    bound = bound_socket(options.host, options.port) if leads else None
    mesh_impl = mesh_for(values, training)
    programs = EnginePrograms(training, mesh_impl, engine_options(values))
    if not values.allow_unread_bindings:
        check_every_binding_is_read(of_flags_alone=True)
    step = programs.restore(folder, values.step, values.weights)
    if bound is None:
        return functools.partial(follow, programs)
    engine = ModelEngine(programs)
    start_id = programs.start_id if programs.starts_prompts else None
    model = ServedModel(name_of(values), engine, vocabulary, stops, template, int(time.time()), start_id)
    print(
        f"serving step {step} of {folder.shown} on mesh [{mesh_impl.shape}], layout [{training.layout_text}]",
        file=sys.stderr,
        flush=True,
    )
    return functools.partial(serve, model, engine, options, bound)


def serve(model: ServedModel, engine: ModelEngine, options: ServerOptions, bound: socket.socket) -> int:
    """Serves until a signal comes. Returns the exit status."""
    sender = _sender(engine)
    try:
        engine.start()
        return _served(model, engine, options, bound)
    finally:
        if sender is not None:
            sender.close()


def _sender(engine: ModelEngine) -> StepSender | None:
    """Links the other processes of a cluster to the engine, which fails if one of them is lost."""
    cluster = collective_runtime().cluster
    if cluster is None:
        return None
    sender = StepSender(cluster)
    engine.programs.share(sender.send)
    sender.watch(engine.fail)
    return sender


def _served(model: ServedModel, engine: ModelEngine, options: ServerOptions, bound: socket.socket) -> int:
    from meshtf.serving.http.app import App
    from meshtf.serving.http.server import Server

    # These loggers warn of each client that disconnects during a reply, and of each that does not send HTTP.
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.ERROR)
    server = Server(App(model, options), bound)
    if not options.is_loopback and options.token is None:
        print(_OPEN.format(program=PROGRAM, host=options.host), file=sys.stderr, flush=True)
    print(f"{model.name} is at {server.address}", file=sys.stderr, flush=True)
    if not server.run():
        return ExitStatus.FAILED
    say_peak_memory(functools.partial(print, file=sys.stderr, flush=True), engine.programs.programs)
    return ExitStatus.DONE


def follow(programs: EnginePrograms) -> int:
    """Runs the same programs as process 0, until process 0 ends the link. Returns the exit status."""
    cluster = collective_runtime().cluster
    assert cluster is not None
    with signals_are_for_process_0(), contextlib.closing(StepReceiver(cluster)) as receiver:
        for name, values in receiver:
            programs.run(name, unpacked(values, programs.inputs(name)))
    return ExitStatus.DONE


@contextlib.contextmanager
def signals_are_for_process_0() -> Iterator[None]:
    """Ignores the first signal. Process 0 receives it too, and ends after its requests. A second one ends at once."""
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        if heard:
            os._exit(128 + number)
        heard.append(number)

    kept = {number: signal.signal(number, hear) for number in heard_signals()}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def server_options(values: flags.FlagValues) -> ServerOptions:
    """Returns the server's options from the flags."""
    return ServerOptions(
        host=values.host,
        port=values.port,
        token=_token(values),
        max_body_bytes=values.max_body_bytes,
        max_connections=values.max_connections,
        request_seconds=values.request_seconds,
        drain_seconds=values.drain_seconds,
    )


def engine_options(values: flags.FlagValues) -> EngineOptions:
    """Returns the engine's options from the flags."""
    names = ("num_rows", "num_prompt_tokens", "page_size", "num_pages", "num_lengths", "queue_length", "form_seconds")
    given: dict[str, Any] = {name: values[name].value for name in names}
    return EngineOptions(**{name: value for name, value in given.items() if value is not None})


def chat_template(values: flags.FlagValues, folder: RunFolder, vocabulary: Any) -> ChatTemplate | None:
    """Returns the template of --chat_template, or the one that came with the checkpoint or the tokenizer."""
    folders = [folder.path / _ORIGINAL, folder.path]
    if isinstance(vocabulary, HuggingFaceVocabulary):
        path = user_path(str(vocabulary.path))
        folders.append(path if path.is_dir() else path.parent)
    if values.chat_template is not None:
        return ChatTemplate.of_file(user_path(values.chat_template), folders)
    return ChatTemplate.of_checkpoint(folders)


def name_of(values: flags.FlagValues) -> str:
    """Returns the model's name in requests and replies, whose JSON has no bytes that are not UTF-8."""
    name = values["name"].value or Path(values.model_dir).name or "model"
    return os.fsencode(name).decode(errors="replace")


def _token(values: flags.FlagValues) -> str | None:
    if values.token_file is None:
        if values.token is not None and not _is_token(values.token):
            raise ConfigurationError(_BAD_TOKEN)
        return values.token
    if values.token is not None:
        raise ConfigurationError(_TWO_TOKENS)
    try:
        token = user_path(values.token_file).read_text("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    except OSError as error:
        raise ConfigurationError(f"--token_file={values.token_file} cannot be read: {error.strerror}") from None
    if not _is_token(token):
        raise ConfigurationError(_NO_TOKEN.format(path=values.token_file))
    return token


def _is_token(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _check_packages() -> None:
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(_MISSING.format(program=PROGRAM, names=", ".join(missing)))


if __name__ == "__main__":
    run()
