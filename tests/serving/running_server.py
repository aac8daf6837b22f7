"""A server with an engine without a model, on a port of its own, in a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from meshtf.serving.http.app import App
from meshtf.serving.http.chat_template import ChatTemplate
from meshtf.serving.http.served_model import ServedModel
from meshtf.serving.http.server import Server, bound_socket
from meshtf.serving.http.server_options import ServerOptions
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary
from meshtf.train.decoding.stops import Stops
from tests.serving.echo_engine import EchoEngine

PATIENCE = 60.0


def app_of(engine: EchoEngine, options: ServerOptions) -> App:
    """The app before an engine, with a template that joins the texts of messages."""
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    return App(ServedModel("tiny", engine, ByteVocabulary(), Stops((1,)), template), options)


@contextlib.contextmanager
def running(engine: EchoEngine, options: ServerOptions, results: list[bool] | None = None) -> Iterator[Server]:
    """The server runs inside. `results` gets what `Server.run` returns."""
    server = Server(app_of(engine, options), bound_socket(options.host, options.port))
    found = results if results is not None else []
    thread = threading.Thread(target=lambda: found.append(server.run()))
    thread.start()
    server.wait_until_started(PATIENCE)
    try:
        yield server
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
