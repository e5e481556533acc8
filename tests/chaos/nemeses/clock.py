"""Wall clocks that jump. A jump proves itself by the time that a node prints while it takes a snapshot."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
from collections.abc import Sequence
from typing import ClassVar, Final

from tests.chaos import clocks
from tests.chaos.nemeses.base import Nemesis
from tests.support.nodes import eventually

JUMPS_S: Final = (-86_400, -3600, -61, 61, 3600, 86_400)
#: A line that a node printed since the start is younger than this, and no jump is shorter.
AGE_S_MAX: Final = 30.0
BITE_DEADLINE_S: Final = 15.0


class ClockJump(Nemesis):
    """The wall clocks of some processes jump, again at the end, when they are right again."""

    name: ClassVar[str] = "clock-jump"
    description: ClassVar[str] = "the wall clocks of some processes jump by a minute to a day, ahead or back"
    fakes_clocks: ClassVar[bool] = True

    def start(self) -> str:
        """Choose clocks and jumps; ask the nodes for a snapshot, so that they print a line."""
        nodes, brokers = self.cluster.nodes, self.cluster.brokers
        self.jumps = {each: self.rng.choice(JUMPS_S) for each in self._some(self.cluster.node_ids)}
        self.outputs = {each: nodes.nodes[each].output_path for each in self.jumps}
        self.printed = {each: path.stat().st_size for each, path in self.outputs.items()}
        self.folders = [(nodes.nodes[each].folder, seconds) for each, seconds in self.jumps.items()]
        of_brokers = {each: self.rng.choice(JUMPS_S) for each in self._some(self.cluster.broker_ids)}
        self.folders += [(brokers.brokers[each].folder, seconds) for each, seconds in of_brokers.items()]
        for folder, seconds in self.folders:
            clocks.put_off(folder, seconds)
        for node_id in self.jumps:
            with contextlib.suppress(OSError, http.client.HTTPException):
                nodes.change(node_id, "POST", "/v1/snapshots", {})
        targets = [f"node {each} by {seconds:+d} s" for each, seconds in self.jumps.items()]
        return ", ".join([*targets, *(f"broker {each} by {far:+d} s" for each, far in of_brokers.items())])

    def _some(self, ids: Sequence[int]) -> list[int]:
        return sorted(self.rng.sample(ids, self.rng.randrange(1, len(ids) + 1))) if ids else []

    def stop(self) -> None:
        """Read what the nodes printed, once one printed a wrong time; set the clocks right."""
        self.seen = 0
        with contextlib.suppress(AssertionError):
            self.seen = eventually(
                lambda: sum(self._off(each) for each in self.jumps),
                BITE_DEADLINE_S,
                "a wrong time is printed",
            )
        for folder, _ in self.folders:
            clocks.put_off(folder, 0)

    def _off(self, node_id: int) -> bool:
        """Whether a line since the start is off by the jump."""
        now = dt.datetime.now()  # noqa: DTZ005 - nodes print local time
        with self.outputs[node_id].open("rb") as file:
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
