"""Authorities and certificates of tests, as `quorate certs` makes them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from quorum.cli.main import main

HOSTS: Final = ("127.0.0.1", "localhost")


class Authority:
    """An authority in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Make it."""
        self.folder = folder
        assert main(["certs", "init", str(folder)]) == 0
        self.file = folder / "ca.pem"

    def issue(self, name: str, *, days: int = 365, hosts: tuple[str, ...] = HOSTS) -> tuple[Path, Path]:
        """Make a certificate; returns its file and its key's."""
        options = [word for host in hosts for word in ("--host", host)]
        assert main(["certs", "issue", str(self.folder), name, "--days", str(days), *options]) == 0
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def both(self, name: str) -> Path:
        """Return the file with key and certificate that Java takes, made if there is none."""
        path = self.folder / f"{name}-both.pem"
        if not path.exists():
            certificate, key = self.issue(name)
            path.write_bytes(key.read_bytes() + certificate.read_bytes())
        return path

    def settings(self, name: str, **more: object) -> dict[str, object]:
        """Return a table of [tls] with a certificate of this name, made if there is none."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if not certificate.exists():
            self.issue(name)
        return {
            "certificate_file": str(certificate),
            "key_file": str(key),
            "authorities_file": str(self.file),
            **more,
        }

    def context(self, name: str = "") -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, with a certificate if it is named."""
        context = ssl.create_default_context(cafile=str(self.file))
        if name:
            context.load_cert_chain(*self.issue(name))
        return context
