"""The checks on which a program's assignments depend."""

from __future__ import annotations

from meshtf.planning.moves.moved_values import MovedValues
from meshtf.planning.open_check import OpenCheck
from meshtf.planning.plan import Check, FeedCheck


class PlannedChecks:
    """The checks of a program or a block, in program order.

    Args:
      moves: the moves of the program or the block.
      finds_failures: whether checks are to say where they fail, which a step that goes well need not know.
      is_of_program: whether they are the program's own. A block's checks are taken up by the program or block around
        it.
    """

    def __init__(self, moves: MovedValues, finds_failures: bool, is_of_program: bool) -> None:
        self.finds_failures = finds_failures
        self._moves = moves
        self._is_of_program = is_of_program
        self._open: list[OpenCheck] = []
        self._closed: list[Check] = []
        self._of_feeds: list[FeedCheck] = []

    def add(self, check: OpenCheck) -> None:
        """Makes the program's assignments depend on a check, once the program or block around has taken it up.

        The sum over cores stands right behind the check, so that updates need not wait for the end of the program.
        """
        self._open.append(check)
        if self._is_of_program:
            record = self._moves.record
            before, record.operation = record.operation, check.operation
            failures = self._moves.reshard(check.failures, check.failures.layout)
            self._closed.append(check.closed(failures, record.compute))
            record.operation = before

    def add_of_feeds(self, check: FeedCheck) -> None:
        """Makes the whole step depend on a check of the arrays that it is fed."""
        self._of_feeds.append(check)

    @property
    def open(self) -> tuple[OpenCheck, ...]:
        """The checks of a block, for the program or block around it to take up."""
        return tuple(self._open)

    @property
    def closed(self) -> tuple[Check, ...]:
        """The checks of the program, each a flag of the whole mesh."""
        return tuple(self._closed)

    @property
    def of_feeds(self) -> tuple[FeedCheck, ...]:
        return tuple(self._of_feeds)
