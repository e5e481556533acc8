"""What an admin port writes to the audit log: every change and every refusal.

Decides what of a request may be written: its path, and the znode or member that it is about, never a body, a
header or another part of a query. Numbers requests as they are answered. Soft state only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from quorum.admin.guard import CHANGES
from quorum.platform.audit import ALLOWED, DENIED, FAILED, UNKNOWN, AuditLog

#: fields of a query or a body that name what a request is about
_NAMING: Final = ("path", "node_id")
_REFUSALS: Final = frozenset((401, 403))
_UNKNOWN_STATUS: Final = 504


class AdminAudit:
    """The audit log, as an admin port writes to it."""

    def __init__(self, log: AuditLog) -> None:
        """Write to the log of the process."""
        self._log = log
        self._numbers = itertools.count(1)

    def answered(self, request: web.Request, principal: str, status: int, said: Mapping[str, object]) -> None:
        """Note a request that got a status of HTTP, if it is worth a line; said: what its body said."""
        if request.method not in CHANGES and status not in _REFUSALS:
            return
        if status in _REFUSALS:
            outcome = DENIED
        elif status == _UNKNOWN_STATUS:
            outcome = UNKNOWN
        else:
            outcome = ALLOWED if status < 400 else FAILED
        peer = request.transport.get_extra_info("peername") if request.transport is not None else None
        address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        number = next(self._numbers)
        self._log.write(principal, address, request.method, _resource(request, said), outcome, request=number)


def _resource(request: web.Request, said_in_body: Mapping[str, object]) -> str:
    said = {**request.query, **said_in_body}
    about = "&".join(f"{name}={said[name]}" for name in _NAMING if said.get(name) not in (None, ""))
    return f"{request.path}?{about}" if about else request.path


AUDIT: Final = web.AppKey[AdminAudit | None]("audit")
