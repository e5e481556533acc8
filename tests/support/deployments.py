"""Configurations of deploy/ as they stand there, moved to folders of a test.

Knows which files the servers of a deployment want, and not what is in them. Source:
docs/operate/containers.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from quorum.cli.main import main

#: a token is as long as `quorate secret new` makes it
_BYTES: Final = 32


class Secrets:
    """Files with secrets, as a deployment mounts them."""

    def __init__(self, folder: Path, tls: tuple[str, str, str]) -> None:
        """Make them.

        Args:
            folder: where they are; it is made.
            tls: names of the certificate, its key and the authority.
        """
        self.folder = folder
        folder.mkdir(mode=0o700)
        token = secrets.token_hex(_BYTES)
        self._write("peer.secret", secrets.token_hex(_BYTES))
        self._write("reader.token", token)
        self._write("admin.tokens", f"reader reader {token}")
        assert main(["certs", "init", str(folder)]) == 0
        assert main(["certs", "issue", str(folder), "server", "--host", "localhost"]) == 0
        for made, wanted in zip(("server.pem", "server.key", "ca.pem"), tls, strict=True):
            (folder / made).rename(folder / wanted)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text + "\n")


def placed(text: str, folder: Path, mounted: Mapping[str, str]) -> str:
    """Return a configuration whose mounted paths are in a folder: {path in it: name in the folder}."""
    for path, name in mounted.items():
        text = text.replace(path, str(folder / name))
    return text
