"""The thread of the nemeses: strike after strike, with calm before each and a wait for recovery after.

The seed decides the order, the victims and how long each strike holds; the instants are the machine's. At
the end, nemeses that struck and never bit strike again: on a busy machine one may find nothing to bite.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.chaos.cluster import ChaosCluster
from tests.chaos.nemeses.base import Nemesis
from tests.chaos.recorder import Recorder
from tests.support.nodes import eventually

CALM_S: Final = (1.5, 3.0)
RECOVERY_DEADLINE_S: Final = 90.0
STRIKES_MAX: Final = 10_000
#: How often a nemesis that never bit strikes again at the end.
AGAIN_MAX: Final = 2


@dataclass
class Strike:
    """What a nemesis did, for run.json; times of the monotonic clock."""

    nemesis: str
    target: str
    started_ns: int
    stopped_ns: int
    #: every process said again that it is ready
    ready_ns: int
    bite: str
    under_way: int

    def line(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class Strikes:
    """Strikes until it is asked to stop, in a thread."""

    def __init__(
        self,
        cluster: ChaosCluster,
        recorder: Recorder,
        kinds: Sequence[type[Nemesis]],
        rng: random.Random,
    ) -> None:
        self._thread = threading.Thread(target=self._run, name="strikes", daemon=True)
        self._cluster = cluster
        self._recorder = recorder
        self._kinds = list(kinds)
        self._rng = rng
        self._stopping = threading.Event()
        self.strikes: list[Strike] = []
        #: what ended the thread; the run fails with it
        self.failure: BaseException | None = None

    def start(self, on_failure: Callable[[], object]) -> None:
        """Begin.

        Args:
            on_failure: called in the thread if strikes cannot go on.
        """
        self._on_failure = on_failure
        self._thread.start()

    def _run(self) -> None:
        """Go through the nemeses in a random order, again and again."""
        try:
            bag: list[type[Nemesis]] = []
            for _ in range(STRIKES_MAX):
                if self._stopping.wait(self._rng.uniform(*CALM_S)):
                    break
                bag = bag or self._rng.sample(self._kinds, len(self._kinds))
                self.strikes.append(self._strike(bag.pop()))
            for _ in range(AGAIN_MAX):
                for kind in self._harmless():
                    self.strikes.append(self._strike(kind))
        except BaseException as error:  # noqa: BLE001 - the end of the thread is the end of the run, which raises it
            self.failure = error
            self._on_failure()

    def _harmless(self) -> list[type[Nemesis]]:
        """Nemeses that struck and never bit."""
        struck = {strike.nemesis for strike in self.strikes}
        bit = {strike.nemesis for strike in self.strikes if strike.bite}
        return [kind for kind in self._kinds if kind.name in struck - bit]

    def _strike(self, kind: type[Nemesis]) -> Strike:
        nemesis = kind(self._cluster, self._recorder, random.Random(self._rng.random()))
        under_way = self._recorder.under_way
        started_ns = time.monotonic_ns()
        try:
            target = nemesis.start()
            # In full, also at the end: a strike that is cut short may not bite. Nothing ever sets this event.
            threading.Event().wait(self._rng.uniform(*nemesis.holds_s))
        finally:
            nemesis.stop()
        stopped_ns = time.monotonic_ns()
        bite = nemesis.bite()
        eventually(self._cluster.ready, RECOVERY_DEADLINE_S, f"all processes are ready after {kind.name}")
        ready_ns = time.monotonic_ns()
        print(f"{kind.name}: {target}; {bite or 'DID NOT BITE'}", flush=True)
        return Strike(kind.name, target, started_ns, stopped_ns, ready_ns, bite, under_way)

    def stop(self) -> None:
        """End the strike under way, wait until the cluster has recovered, and raise what went wrong."""
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure
