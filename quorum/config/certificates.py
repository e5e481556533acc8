"""The certificates of one process: read at its start, again on SIGHUP and every minute.

Decides what counts when a file has changed: what is whole counts for the next connection, what is not keeps
what was, with one warning a change. Connections that are open stay. Warns once a day before a certificate
expires. Soft state only.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from quorum.config.last_good import LastGood
from quorum.config.tls import TlsSection, read_material
from quorum.platform.tls import HANDSHAKE_TIMEOUT_S, MakeContext, TlsPort, not_after_s

log = logging.getLogger("quorate.tls")

RELOAD_S: Final = 60.0
_DAY_S: Final = 86_400.0
#: how long before its end a certificate is warned of
EXPIRY_WARNING_S: Final = 30 * _DAY_S


class Certificates:
    """What the TLS ports of one process prove and believe now."""

    def __init__(self, settings: Mapping[str, TlsSection], used: Iterable[str]) -> None:
        """Read every file that is used.

        Args:
            settings: {NAME: its settings}. used: the NAMEs that this process uses.

        Raises:
            ConfigError: a file is wrong.
        """
        self._material = {name: LastGood(partial(read_material, settings[name], name)) for name in used}
        #: {NAME: its port}, of those that accept
        self.ports: dict[str, TlsPort] = {}
        self._warned_s: dict[str, float] = {}
        self._warn_of_expiry()

    def __contains__(self, name: str) -> bool:
        """Tell whether this process uses a NAME."""
        return name in self._material

    def port(
        self, name: str, *, takes_plain: bool = False, timeout_s: float = HANDSHAKE_TIMEOUT_S
    ) -> TlsPort | None:
        """Return how a port of this NAME does TLS, as `TlsPort` has it; None: the NAME is not used.

        Called once for each; inside of a running loop.
        """
        if name not in self:
            return None
        port = self.ports[name] = TlsPort(
            name, lambda: self._material[name].value.accepting(), takes_plain=takes_plain, timeout_s=timeout_s
        )
        return port

    def dialling(self, name: str) -> MakeContext:
        """Return what makes the context of a connection that this NAME dials."""
        return lambda: self._material[name].value.dialling()

    def dialling_itself(self, name: str) -> MakeContext:
        """Return what makes the context of a connection with this NAME's own port, whatever it is called."""

        def make() -> ssl.SSLContext:
            context = self._material[name].value.dialling()
            context.check_hostname = False
            return context

        return make

    def expiries(self) -> dict[str, float]:
        """Return {NAME: when the first certificate of it that does expires, in seconds since 1970}."""
        found: dict[str, float] = {}
        for name, material in self._material.items():
            read = material.value
            whole = read.certificate + b"\n" + read.authorities.encode("ascii", "replace")
            if (until_s := not_after_s(whole)) is not None:
                found[name] = until_s
        return found

    def reload(self) -> None:
        """Read every file again; a bad one changes nothing for its NAME."""
        for name, material in self._material.items():
            if material.reload():
                log.info("the files of tls.%s are read again and count from the next connection on", name)
        self._warn_of_expiry()

    def _warn_of_expiry(self) -> None:
        now_s = time.time()
        for name, until_s in self.expiries().items():
            if until_s - now_s > EXPIRY_WARNING_S or now_s - self._warned_s.get(name, 0.0) < _DAY_S:
                continue
            self._warned_s[name] = now_s
            days = (until_s - now_s) / _DAY_S
            told = f"expires in {days:.1f} days" if days > 0 else f"expired {-days:.1f} days ago"
            log.warning("a certificate of tls.%s %s: replace its files, nothing needs a restart", name, told)
