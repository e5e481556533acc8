"""Several nemeses in one strike, as `latency+kill-leader`: which begin in order and end in reverse."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import ClassVar

from tests.chaos.nemeses.base import Nemesis


class Together(Nemesis):
    """Bites if all of its parts do."""

    kinds: ClassVar[Sequence[type[Nemesis]]]

    def start(self) -> str:
        """Begin one after the other."""
        self.parts: list[Nemesis] = []
        targets = []
        for kind in self.kinds:
            self.parts.append(kind(self.cluster, self.recorder, random.Random(self.rng.random())))
            targets.append(self.parts[-1].start())
        return " and ".join(targets)

    def stop(self) -> None:
        """End all, the last first, whatever happens to the others."""
        with contextlib.ExitStack() as ending:
            for part in self.parts:
                ending.callback(part.stop)

    def bite(self) -> str:
        """Join what the parts say."""
        bites = [part.bite() for part in self.parts]
        return " and ".join(bites) if all(bites) else ""


def together(*parts: type[Nemesis]) -> type[Nemesis]:
    """Make one nemesis of several, which holds as long as the most patient."""

    class Named(Together):
        name = "+".join(part.name for part in parts)
        description = "; ".join(part.description for part in parts)
        needs_brokers = any(part.needs_brokers for part in parts)
        needs_clients = any(part.needs_clients for part in parts)
        needs_security = any(part.needs_security for part in parts)
        fakes_clocks = any(part.fakes_clocks for part in parts)
        holds_s = (max(part.holds_s[0] for part in parts), max(part.holds_s[1] for part in parts))
        kinds = parts

    return Named
