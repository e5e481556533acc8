"""The commands of docs/operate that keep a cluster well, as an operator runs them.

Each page is walked on processes that its own commands start, or on a cluster of the test's own.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.site.commands import walk
from tests.support.nodes import eventually

WAIT_S = 60.0
#: what servers say once they take part
SERVERS = {"quorate serve": "quorate.raft became leader", "quorate broker": "registered with generation"}


def test_a_cluster_is_secured_step_by_step(tmp_path: Path) -> None:
    with walk("docs/operate/secure.md", tmp_path, runs_on=SERVERS) as page:
        for heading in ("Make secrets", "Nodes", "Brokers", "A profile of options"):
            page.run(heading)
        page.run("Users and rights of Kafka clients")
        page.run()
