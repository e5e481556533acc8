"""`python -m tests.bench.bare_node`: `quorate serve` without a change log.

So a benchmark says what the change log costs. Everything else is the shipped node.
"""

from __future__ import annotations

import sys

from quorum.changelog.recorder import ChangeRecorder
from quorum.cli.main import main
from quorum.core.machine import StateMachine
from quorum.node import node


class _Silent(ChangeRecorder):
    """A change log into which nothing comes."""

    def _adopt(self, machine: StateMachine) -> None:
        super()._adopt(machine)
        machine.tree.trace = None

    def entry_applied(self) -> None:
        """Leave it out."""


if __name__ == "__main__":
    # The node looks the class up when it starts.
    node.ChangeRecorder = _Silent  # type: ignore[attr-defined]
    sys.exit(main())
