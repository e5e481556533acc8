"""The shape of a nemesis.

A nemesis is made for one strike: it draws its victim and strength from a seeded generator, begins, ends, and
then says what shows that it bit, or "" if nothing does. All methods run in the thread of the nemeses.
"""

from __future__ import annotations

import abc
import random
from typing import ClassVar

from tests.chaos.cluster import ChaosCluster
from tests.chaos.recorder import Recorder


class Nemesis(abc.ABC):
    """One fault, once."""

    name: ClassVar[str]
    description: ClassVar[str]
    needs_brokers: ClassVar[bool] = False
    #: strikes clients that are processes of their own
    needs_clients: ClassVar[bool] = False
    #: strikes what a cluster with TLS has
    needs_security: ClassVar[bool] = False
    #: the nodes run with libfaketime
    fakes_clocks: ClassVar[bool] = False
    #: how long it holds, seconds: drawn from this range
    holds_s: ClassVar[tuple[float, float]] = (2.0, 6.0)

    def __init__(self, cluster: ChaosCluster, recorder: Recorder, rng: random.Random) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.rng = rng

    @abc.abstractmethod
    def start(self) -> str:
        """Begin; returns who or what is hit, in words."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End; also after a start that failed half-way."""

    @abc.abstractmethod
    def bite(self) -> str:
        """After stop: what shows that it bit, in words; "" if nothing does."""
