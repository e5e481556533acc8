"""What goes wrong: small classes that begin a fault, end it, and prove that it bit."""

from __future__ import annotations

from typing import Final

from tests.chaos.nemeses.base import Nemesis
from tests.chaos.nemeses.certificates import CERTIFICATES
from tests.chaos.nemeses.clients import CLIENTS
from tests.chaos.nemeses.clock import CLOCK
from tests.chaos.nemeses.disks import DISKS
from tests.chaos.nemeses.members import MEMBERS
from tests.chaos.nemeses.moves import MOVES
from tests.chaos.nemeses.network import NETWORK
from tests.chaos.nemeses.process import PROCESS
from tests.chaos.nemeses.together import together

NEMESES: Final[dict[str, type[Nemesis]]] = {
    each.name: each
    for each in (*NETWORK, *PROCESS, *DISKS, *CLOCK, *CLIENTS, *MEMBERS, *MOVES, *CERTIFICATES)
}


def find_nemesis(name: str) -> type[Nemesis]:
    """Return the nemesis of a name; several names joined by "+" strike together.

    Raises:
        KeyError: there is none of this name.
    """
    kinds = [NEMESES[part] for part in name.split("+")]
    return kinds[0] if len(kinds) == 1 else together(*kinds)
