"""Whom a command line asks that names nobody, and which files of it, or of a profile, mean TLS. No state."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from quorum.config.tls import TlsSection, read_material
from quorum.errors import ConfigError, UsageError
from quorum.platform.tls import MakeContext

#: the admin ports of `quorate up`
DEFAULT_ADMIN_URLS: Final = tuple(f"http://127.0.0.1:{port}" for port in (8181, 8182, 8183))


def read_dialling(
    ca: Path | None, cert: Path | None, key: Path | None, *, serves: bool = False
) -> MakeContext | None:
    """Return what makes the context of each connection; None: it dials without TLS.

    Args:
        ca: who signs servers. cert, key: what is shown to them. All are files in PEM.
        serves: whether the command serves by TLS with the latter two, and may dial without.

    Raises:
        UsageError: one is missing or wrong; it names the option.
    """
    if ca is None and cert is None and key is None:
        return None
    serves_alone = serves and ca is None and cert is not None and key is not None
    if not serves_alone and (ca is None or (cert is None) != (key is None)):
        remedy = "give --ca FILE [--cert FILE --key FILE]"
        raise UsageError("--cert and --key need each other, and --ca", remedy)
    try:
        material = read_material(TlsSection(cert, key, ca), "")
        return None if serves_alone else material.dialling
    except ConfigError as error:
        first = error.problems[0]
        option = {"certificate": "--cert", "key": "--key"}.get(first.field[5:-5], "--ca")
        raise UsageError(f"{option} {first.value}: {first.problem}", first.remedy) from error
