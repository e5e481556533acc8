"""How `quorate up` asks a process of its own whether it is ready, also where its admin port speaks TLS.

Decides the scheme by what the process's configuration file and the environment say. Over TLS it shows the
process's own certificate, for one may be needed, and checks none: it asks a port of this machine for nothing
that is secret. No state.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from quorum.admin.client import get_readiness
from quorum.config.settings import (
    BOOLEAN,
    BROKER_PREFIX,
    ENVIRONMENT_PREFIX,
    collect_file,
    overlay_environment,
    read_section,
    setting,
)
from quorum.config.tls import NODE_TLS, TlsSection, read_tls, tls_sections
from quorum.errors import QuorateError
from quorum.launcher.child import HOST, Child, child_environment
from quorum.platform.tls import DIALLING, MakeContext

_NAMES: Final = {"admin": NODE_TLS["admin"]}


@dataclass(frozen=True, slots=True)
class _SecuritySection:
    admin_ssl: bool = setting(BOOLEAN, False)


def admin_url(child: Child) -> str:
    """Return the URL of a process's admin port."""
    scheme = "http" if _admin_tls(child) is None else "https"
    return f"{scheme}://{HOST}:{child.ports['admin']}"


def is_ready(child: Child, timeout_s: float) -> tuple[bool, str]:
    """Ask a process whether it serves clients; blocks. As `get_readiness`."""
    tls = _admin_tls(child)
    if tls is None:
        return get_readiness(admin_url(child), timeout_s)
    before = DIALLING.set(_context_of(tls))
    try:
        return get_readiness(admin_url(child), timeout_s)
    finally:
        DIALLING.reset(before)


def dialling_words(child: Child) -> tuple[str, ...]:
    """Return the options by which a command dials a process's admin port; none where it speaks no TLS.

    The process's own certificate is among them only if the port asks everybody for one.
    """
    tls = _admin_tls(child)
    if tls is None or tls.authorities_file is None:
        return ()
    words = ["--ca", str(tls.authorities_file)]
    if tls.client_auth == "need" and tls.certificate_file is not None and tls.key_file is not None:
        words += ["--cert", str(tls.certificate_file), "--key", str(tls.key_file)]
    return tuple(words)


def _context_of(tls: TlsSection) -> MakeContext:
    def make() -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if tls.certificate_file is not None and tls.key_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
        return context

    return make


def _admin_tls(child: Child) -> TlsSection | None:
    """Return [tls.admin] of a process; None: its admin port is plain, or nothing can be known of it."""
    try:
        raw = collect_file(child.config_file)
    except QuorateError:
        # The process itself says what is wrong with its file.
        return None
    sections: dict[str, type | None] = {"security": _SecuritySection, **tls_sections(TlsSection, _NAMES)}
    prefix = BROKER_PREFIX if child.kind == "broker" else ENVIRONMENT_PREFIX
    # The process refuses to start for what is wrong.
    overlay_environment(raw, child_environment(), sections, [], prefix)
    folder = child.config_file.parent
    security = read_section(_SecuritySection, "security", raw, folder, [])
    if security is None or not security.admin_ssl:
        return None
    return read_tls(TlsSection, _NAMES, raw, folder, []).get("admin")
