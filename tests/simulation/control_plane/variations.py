"""How the cluster of a seed is set up: what its settings are, apart from what goes wrong.

Drawn by a generator of its own, so that a seed which varies nothing is the run that it was.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

#: of requests that an operator writes into znodes
BY_ZNODE_CHANCE = 0.3
TRANSACTIONS_CHANCE = 0.3


class Variations:
    """Of one seed."""

    def __init__(self, rng: random.Random, broker_ids: Sequence[int]) -> None:
        """Draw."""
        #: brokers whose channel is "queue"; in one cluster they may differ, as during a change of the setting
        self.by_queue: frozenset[int] = frozenset()
        kind = rng.random()
        if kind < 0.15:
            self.by_queue = frozenset(broker_ids)
        elif kind < 0.25:
            self.by_queue = frozenset(rng.sample(broker_ids, rng.randint(1, len(broker_ids))))
        #: whether an operator writes its requests into znodes, too
        self.by_znode = rng.random() < BY_ZNODE_CHANCE
        #: fetch sessions of a broker: whoever has none names all that it wants each time
        self.session_slots = rng.choice([0, 0, 1, 1000])
        #: whether producers have transactions
        self.has_transactions = rng.random() < TRANSACTIONS_CHANCE

    def __str__(self) -> str:
        """Name what is not as usual."""
        names = [f"channel=queue {sorted(self.by_queue)}"] if self.by_queue else []
        names += ["requests by znode"] if self.by_znode else []
        names += [f"fetch sessions {self.session_slots}"] if self.session_slots else []
        names += ["transactions"] if self.has_transactions else []
        return ", ".join(names) or "none"
