"""The scopes that are open while a graph is built. They prefix the names of variables and operations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.dimension import Dimension
from meshtf.errors import GraphError
from meshtf.layer_scopes import LayerScope, ScopedName

if TYPE_CHECKING:
    from meshtf.graph.operation import Operation


class Scopes:
    """The open scopes and the used names of a graph.

    The path of scopes prefixes the names of variables, operations and random keys. Scopes of layers also contain the
    layers' dimension and number.
    """

    def __init__(self) -> None:
        self._scopes: list[str] = []
        self._layer_scopes: list[LayerScope] = []
        self._scoped_name: ScopedName | None = None
        self.differentiated: Operation | None = None
        """The operation whose gradient is being built, or None. Operations made meanwhile are part of the gradient."""
        self._names: dict[str, int] = {}
        self._scope_of_tensorflow = _scope_of_tensorflow()

    @property
    def scope(self) -> str:
        """The path of the open scopes, such as `decoder/layer_000`; empty outside of all."""
        return "/".join(self._scopes)

    @property
    def layer_scopes(self) -> tuple[LayerScope, ...]:
        """The open scopes of layers, outermost first."""
        return tuple(self._layer_scopes)

    def scoped(self, name: str) -> str:
        return f"{self.scope}/{name}" if self._scopes else name

    def checked_name(self, name: str, what: str) -> str:
        """Returns a name for something in this graph, if it is valid. Raises GraphError if it is not."""
        return checked_name(name, what)

    def check_scope_of_tensorflow(self) -> None:
        """Raises GraphError inside a tf.variable_scope that was opened after the graph was made.

        Such a scope does not name meshtf's variables.
        """
        opened = _scope_of_tensorflow()
        if opened != self._scope_of_tensorflow:
            name = opened.removeprefix(f"{self._scope_of_tensorflow}/")
            raise GraphError(
                f'tf.variable_scope("{opened}") is open, and does not name variables of meshtf, so that layers in '
                f'scopes of different names would share theirs; open mtf.variable_scope("{name}") in its place'
            )

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` under the open scopes, with `_1`, `_2`, ... appended if it is taken."""
        base = self.scoped(self.checked_name(name, "an operation"))
        candidate, count = base, self._names.get(base, 0)
        while candidate in self._names:
            candidate, count = f"{base}_{count}", count + 1
        if mark_as_used:
            self._names[base] = max(count, 1)
            self._names.setdefault(candidate, 1)
        return candidate

    @contextlib.contextmanager
    def variable_scope(self, name: str | None = None, default_name: str | None = None) -> Iterator[str]:
        """Opens a scope: `name` unchanged (opening it again shares its variables), or `default_name` made unique."""
        if not (name or default_name):
            raise GraphError("a scope needs a name or a default_name")
        if name is None:
            name = self.unique_name(f"{default_name}").removeprefix(f"{self.scope}/")
        self._scopes.append(self.checked_name(name, "a scope"))
        try:
            yield self.scope
        finally:
            self._scopes.pop()

    @contextlib.contextmanager
    def layer_scope(self, name: str, dim: Dimension, number: int | None = None) -> Iterator[None]:
        """Opens the scope of one layer of a stack, or of all layers if no number is given."""
        with self.inside_layers(LayerScope(self.scoped(name), dim, number)):
            yield

    @contextlib.contextmanager
    def inside_layers(self, scope: LayerScope) -> Iterator[None]:
        """Opens a scope of layers, which replaces the open scopes."""
        self._layer_scopes.append(scope)
        try:
            with self.root_scope(), self.variable_scope(scope.path):
                yield
        finally:
            self._layer_scopes.pop()

    @contextlib.contextmanager
    def variable_scopes_of(self, full_name: str, layer_scopes: Sequence[LayerScope]) -> Iterator[None]:
        """Opens a scope with a variable's full name, inside the layer scopes in which it was made."""
        before, self._layer_scopes = self._layer_scopes, [*layer_scopes]
        try:
            with self.root_scope(), self.variable_scope(full_name):
                yield
        finally:
            self._layer_scopes = before

    @contextlib.contextmanager
    def gradient_of(self, operation: Operation) -> Iterator[None]:
        """Opens the scope of gradients. Layout rules treat operations made inside as at the place of `operation`."""
        before, self._scoped_name = self._scoped_name, operation.scoped_name
        try:
            with self.variable_scope("gradients"), self.differentiating(operation):
                yield
        finally:
            self._scoped_name = before

    @contextlib.contextmanager
    def differentiating(self, operation: Operation | None) -> Iterator[None]:
        """Marks the operations made inside as the gradient of `operation`, for reports. Names and layouts ignore it."""
        before, self.differentiated = self.differentiated, operation
        try:
            yield
        finally:
            self.differentiated = before

    def scoped_name(self, name: str) -> ScopedName:
        """The scoped name of an operation that is being made."""
        return self._scoped_name or ScopedName(name, self.layer_scopes)

    @contextlib.contextmanager
    def root_scope(self) -> Iterator[None]:
        """Leaves all scopes, until its end."""
        scopes, self._scopes = self._scopes, []
        try:
            yield
        finally:
            self._scopes = scopes


@says_where
def checked_name(name: object, what: str) -> str:
    """Returns a name, if it is valid. Raises GraphError if it is not text, is empty, or has an empty part."""
    if not isinstance(name, str) or not all(name.split("/")):
        raise GraphError(f'the name of {what} is text, such as "decoder" or "decoder/layer", and not {name!r}')
    return name


def _scope_of_tensorflow() -> str:
    """The name of the innermost open tf.variable_scope; empty outside of all."""
    return tf.compat.v1.get_variable_scope().name
