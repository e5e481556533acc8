"""Certificates are replaced while their process serves."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import time
from collections.abc import Callable
from typing import ClassVar, Final

from tests.chaos.nemeses.base import Nemesis
from tests.support.nodes import eventually

BITE_DEADLINE_S: Final = 30.0
#: of a new certificate: another number of days each time, so that its end is another one
DAYS: Final = (100, 3000)
EXPIRY: Final = re.compile(r"^quorate_tls_certificate_expiry_seconds\S* (\S+)$", re.MULTILINE)


class RenewCertificate(Nemesis):
    """A new certificate and SIGHUP."""

    name: ClassVar[str] = "renew-certificate"
    description: ClassVar[str] = "a node or broker gets a new certificate and key while it serves"
    needs_security: ClassVar[bool] = True
    holds_s: ClassVar[tuple[float, float]] = (0.1, 0.5)

    def start(self) -> str:
        """Choose a process, write its files and have it read them."""
        nodes, brokers = self.cluster.nodes, self.cluster.brokers
        whose: list[tuple[str, Callable[[], int], int]] = [
            (f"node-{each.node_id}", lambda each=each: nodes.pid(each.node_id), each.admin_port)  # type: ignore[misc]
            for each in nodes.nodes.values()
        ]
        whose += [
            (f"broker-{each.broker_id}", lambda each=each: brokers.pid(each.broker_id), each.admin_port)  # type: ignore[misc]
            for each in brokers.brokers.values()
        ]
        name, pid, self.port = self.rng.choice(whose)
        days = self.rng.randint(*DAYS)
        self.ends = time.time() + days * 24 * 3600
        assert self.cluster.secured is not None
        self.cluster.secured.authority.issue(name, days=days)
        # One that another strike has killed reads them at its start.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid(), signal.SIGHUP)
        return name

    def stop(self) -> None:
        """It stays."""

    def bite(self) -> str:
        """Wait until the process says that the new certificate counts."""
        with contextlib.suppress(AssertionError):
            eventually(self._counts, BITE_DEADLINE_S, "the new certificate counts")
            return "it counts"
        return ""

    def _counts(self) -> bool:
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)) as link,
        ):
            link.request("GET", "/metrics")
            found = EXPIRY.findall(link.getresponse().read().decode())
            return bool(found) and all(abs(float(each) - self.ends) < 3600 for each in found)
        return False


CERTIFICATES: Final[tuple[type[Nemesis], ...]] = (RenewCertificate,)
