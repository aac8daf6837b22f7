"""The checks on which a program's assignments depend."""

from __future__ import annotations

import dataclasses

from meshtf.planning.moves.moved_values import MovedValues
from meshtf.planning.open_check import OpenCheck
from meshtf.planning.plan import Check, FeedCheck


@dataclasses.dataclass
class PlannedChecks:
    """The checks of a program or a block, in program order.

    Attributes:
      moves: the moves of the program or the block.
      finds_failures: whether checks report where they fail. A step that succeeds does not need this.
      is_of_program: whether the checks belong to the program itself. The enclosing program or block adopts a block's
        checks.
      open: the checks of a block, for the enclosing program or block to adopt.
      closed: the checks of the program, each a flag of the whole mesh.
      of_feeds: checks of the arrays that the program is fed.
    """

    moves: MovedValues
    finds_failures: bool
    is_of_program: bool
    open: list[OpenCheck] = dataclasses.field(default_factory=list)
    closed: list[Check] = dataclasses.field(default_factory=list)
    of_feeds: list[FeedCheck] = dataclasses.field(default_factory=list)

    def add(self, check: OpenCheck) -> None:
        """Makes the program's assignments depend on a check. A check of a block takes effect once the enclosing program
        adopts it.

        The sum over cores comes right after the check, so that updates need not wait for the end of the program.
        """
        self.open.append(check)
        if self.is_of_program:
            record = self.moves.record
            with record.on_behalf_of(check.operation):
                failures = self.moves.reshard(check.failures, check.failures.layout)
                self.closed.append(check.closed(failures, record.compute))

    def add_of_feeds(self, check: FeedCheck) -> None:
        """Makes the whole step depend on a check of the arrays that it is fed."""
        self.of_feeds.append(check)
