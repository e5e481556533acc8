"""A real toxiproxy server in front of every link of a cluster, driven by toxiproxy-python.

A link is a proxy with a name such as `peer-1-2`: what node 1 dials to reach node 2. "upstream" is what the
dialler sends, "downstream" what it receives. A fault is a set of toxics on some links; `heal` takes away what
was laid on a link. What a toxic held back is counted by toxiproxy itself, when a connection ends: bytes that
it received and never sent on. Knows nothing of the cluster.
Source: docs/internals/reliability.md, "Nemeses"; toxiproxy 2.5 (toxics, /metrics).
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import re
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import psutil
from toxiproxy import Proxy, Toxiproxy

from tests.support.nodes import REPOSITORY, eventually, hold_port, tail

SERVER: Final = REPOSITORY / ".venv" / "bin" / "toxiproxy-server"
BOTH: Final = ("upstream", "downstream")
HTTP_TIMEOUT_S: Final = 5.0
_SAMPLE: Final = re.compile(r'toxiproxy_proxy_(received|sent)_bytes_total\{.*proxy="([^"]+)".*\} (\S+)')


class ToxiproxyMissingError(RuntimeError):
    """There is no toxiproxy server."""

    def __init__(self) -> None:
        super().__init__(f"{SERVER} is missing: run deploy/ensure-toxiproxy.sh")


class Proxies:
    """One toxiproxy server and its links. toxiproxy-python knows one server a process, so there is one."""

    def __init__(self, folder: Path) -> None:
        """Start the server; its output goes to a file in the folder."""
        if not SERVER.exists():
            raise ToxiproxyMissingError
        self._holders: list[socket.socket] = []
        holder, self._port = hold_port()
        self._holders.append(holder)
        self.output_path = folder / "toxiproxy.log"
        command = [str(SERVER), "-host", "127.0.0.1", "-port", str(self._port), "-proxy-metrics"]
        with self.output_path.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._server = Toxiproxy()
        self._server.update_api_consumer("127.0.0.1", self._port)
        eventually(self._serves, 10.0, f"toxiproxy serves: {tail(self.output_path)}")
        #: {link: its proxy}
        self._proxies: dict[str, Any] = {}
        #: {link: names of the toxics that lie on it}
        self._toxics: dict[str, list[str]] = {}
        self._numbers = itertools.count(1)
        #: several nemeses may act at a time
        self._lock = threading.Lock()

    def _serves(self) -> bool:
        return bool(self._server.running())

    @property
    def names(self) -> list[str]:
        """All links, by name."""
        return sorted(self._proxies)

    def link(self, name: str, upstream: str) -> str:
        """Return the address of a link, "host:port"; the first call for a name makes it."""
        if name not in self._proxies:
            # The port stays reserved for the link, also while it is cut.
            holder, port = hold_port()
            self._holders.append(holder)
            proxy: Proxy = self._server.create(upstream=upstream, name=name, listen=f"127.0.0.1:{port}")
            self._proxies[name] = proxy
        return str(self._proxies[name].listen)

    def address(self, name: str) -> str:
        """Return where to dial a link, "host:port"; "" if there is none of this name, not yet or no more."""
        proxy = self._proxies.get(name)
        return "" if proxy is None else str(proxy.listen)

    def remove(self, *patterns: str) -> None:
        """Take links away that match one of the patterns as a whole; their connections end."""
        for name in self.matching(*patterns):
            with self._lock:
                self._toxics.pop(name, None)
                self._proxies.pop(name).destroy()

    def matching(self, *patterns: str) -> list[str]:
        """Names of links that match one of the patterns as a whole (regular expressions)."""
        return [name for name in self.names if any(re.fullmatch(pattern, name) for pattern in patterns)]

    # -- faults ----------------------------------------------------------------------------------------------

    def add(self, names: Iterable[str], kind: str, streams: Iterable[str] = BOTH, **attributes: int) -> None:
        """Lay a toxic on links, in each of the streams."""
        for name in names:
            for stream in streams:
                with self._lock:
                    # Several faults of a kind may lie on a link.
                    toxic = f"{kind}-{stream}-{next(self._numbers)}"
                    self._proxies[name].add_toxic(type=kind, name=toxic, stream=stream, attributes=attributes)
                    self._toxics.setdefault(name, []).append(toxic)

    def hold(self, names: Iterable[str], streams: Iterable[str] = BOTH) -> None:
        """Let nothing through, without a word: connections stand, and new ones are accepted."""
        self.add(names, "timeout", streams, timeout=0)

    def cut(self, names: Iterable[str]) -> None:
        """End all connections and refuse new ones."""
        for name in names:
            with self._lock:
                self._proxies[name].disable()

    def heal(self, names: Iterable[str]) -> None:
        """Take all faults off links; connections that were held end."""
        for name in names:
            with self._lock:
                for toxic in self._toxics.pop(name, []):
                    self._proxies[name].destroy_toxic(toxic)
                if not self._proxies[name].enabled:
                    self._proxies[name].enable()

    # -- what they did ---------------------------------------------------------------------------------------

    def withheld(self) -> Counter[str]:
        """{link: bytes that its ended connections received and did not send on}."""
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self._port, timeout=HTTP_TIMEOUT_S)
        ) as link:
            link.request("GET", "/metrics")
            text = link.getresponse().read().decode()
        found: Counter[str] = Counter()
        for side, name, value in _SAMPLE.findall(text):
            found[name] += int(float(value)) * (1 if side == "received" else -1)
        return found

    def connections(self) -> set[tuple[str, int]]:
        """All connections that stand: (link, port of the dialler)."""
        ports = {int(proxy.listen.rpartition(":")[2]): name for name, proxy in self._proxies.items()}
        return {
            (ports[each.laddr.port], each.raddr.port)
            for each in psutil.Process(self._process.pid).net_connections(kind="tcp")
            if each.status == psutil.CONN_ESTABLISHED and each.laddr.port in ports
        }

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait(HTTP_TIMEOUT_S)
        for holder in self._holders:
            holder.close()
