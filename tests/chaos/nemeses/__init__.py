"""What goes wrong: small classes that begin a fault, end it, and prove that it bit."""

from __future__ import annotations

from typing import Final

from tests.chaos.nemeses.base import Nemesis
from tests.chaos.nemeses.clock import CLOCK
from tests.chaos.nemeses.disks import DISKS
from tests.chaos.nemeses.members import MEMBERS
from tests.chaos.nemeses.network import NETWORK
from tests.chaos.nemeses.process import PROCESS

NEMESES: Final[dict[str, type[Nemesis]]] = {
    each.name: each for each in (*NETWORK, *PROCESS, *DISKS, *CLOCK, *MEMBERS)
}
