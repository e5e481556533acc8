"""Wall clocks that jump. A jump proves itself by the time that a node prints while it takes a snapshot."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
from typing import ClassVar, Final

from tests.chaos import clocks
from tests.chaos.nemeses.base import Nemesis

JUMPS_S: Final = (-86_400, -3600, -61, 61, 3600, 86_400)
#: A line that a node printed since the start is younger than this, and no jump is shorter.
AGE_S_MAX: Final = 30.0


class ClockJump(Nemesis):
    """The wall clocks of some nodes jump, again at the end, when they are right again."""

    name: ClassVar[str] = "clock-jump"
    description: ClassVar[str] = "the wall clocks of some nodes jump by a minute to a day, ahead or back"
    fakes_clocks: ClassVar[bool] = True

    def start(self) -> str:
        """Choose nodes and how far each is off; ask each for a snapshot, which it writes a line about."""
        count = self.rng.randrange(1, len(self.cluster.node_ids) + 1)
        self.jumps = {
            each: self.rng.choice(JUMPS_S) for each in sorted(self.rng.sample(self.cluster.node_ids, count))
        }
        nodes = self.cluster.nodes
        self.printed = {each: nodes.nodes[each].output_path.stat().st_size for each in self.jumps}
        for node_id, seconds in self.jumps.items():
            clocks.put_off(nodes.nodes[node_id].folder, seconds)
        for node_id in self.jumps:
            with contextlib.suppress(OSError, http.client.HTTPException):
                nodes.change(node_id, "POST", "/v1/snapshots", {})
        return ", ".join(f"node {each} by {seconds:+d} s" for each, seconds in self.jumps.items())

    def stop(self) -> None:
        """Read what the nodes printed; set the clocks right."""
        now = dt.datetime.now()  # noqa: DTZ005 - nodes print local time
        self.seen = sum(self._off(node_id, now) for node_id in self.jumps)
        for node_id in self.jumps:
            clocks.put_off(self.cluster.nodes.nodes[node_id].folder, 0)

    def _off(self, node_id: int, now: dt.datetime) -> bool:
        """Whether a line since the start is off by the jump."""
        with self.cluster.nodes.nodes[node_id].output_path.open("rb") as file:
            file.seek(self.printed[node_id])
            lines = file.read().decode("utf-8", "replace").splitlines()
        for line in lines:
            with contextlib.suppress(ValueError):
                ahead_s = (dt.datetime.fromisoformat(line[:23]) - now).total_seconds()
                if abs(ahead_s - self.jumps[node_id]) < AGE_S_MAX:
                    return True
        return False

    def bite(self) -> str:
        """Count the nodes whose lines were off."""
        return f"{self.seen} nodes printed a wrong time" if self.seen else ""


CLOCK: Final[tuple[type[Nemesis], ...]] = (ClockJump,)
