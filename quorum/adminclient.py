"""Asks a node's admin port over HTTP, for the commands that show or wait for a node's state.

Blocking, one connection per question, no proxies from the environment (a node on loopback must never be asked
through one). Foreign exceptions become UnreachableError here. What the answers mean is decided by the
callers. No state.
"""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from quorum.errors import Fault, QuorateError, UnreachableError, UsageError, shown

ANSWER_BYTES_MAX = 16 * 1024 * 1024
_REMEDY = "start the node, or name another one with --admin http://host:port"


class RefusedByNodeError(QuorateError):
    """A node's answer to a request that it did not carry out, with the node's own remedy.

    Attributes:
        status: of HTTP.
    """

    fault = Fault.OPERATOR

    def __init__(self, status: int, message: str, remedy: str, *, definite: bool, retriable: bool) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.definite = definite
        self.retriable = retriable


def get(url: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Send one GET; see `send`."""
    return send(url, "GET", path, timeout_s)


def send(url: str, method: str, path: str, timeout_s: float, body: bytes | None = None) -> tuple[int, bytes]:
    """Send one request.

    Args:
        url: the admin port as http://host:port.
        method: of HTTP.
        path: what to ask for, as /v1/status.
        timeout_s: for the connection, and again for each read.
        body: JSON, if there is one.

    Returns:
        Status code and body.

    Raises:
        UsageError: url is not http://host:port.
        UnreachableError: no answer, or none within ANSWER_BYTES_MAX. Retriable.
    """
    host, port = _host_and_port(url)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        body = response.read(ANSWER_BYTES_MAX + 1)
    except TimeoutError as error:
        raise UnreachableError(f"{url} did not answer within {timeout_s:g} s", _REMEDY) from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreachableError(
            f"{url} cannot be reached: {reason or type(error).__name__}", _REMEDY
        ) from error
    finally:
        connection.close()
    if len(body) > ANSWER_BYTES_MAX:
        raise UnreachableError(f"{url}{path} answered with more than {ANSWER_BYTES_MAX} bytes", _REMEDY)
    return response.status, body


def ask(
    url: str, method: str, path: str, timeout_s: float, fields: dict[str, object] | None = None
) -> dict[str, Any]:
    """Send a request that changes something and return the node's answer.

    Args:
        url: as in `send`.
        method: of HTTP.
        path: what to ask for.
        timeout_s: longer than the node takes to find out that it does not know the outcome.
        fields: the body, a JSON object.

    Raises:
        UsageError: url is not http://host:port.
        UnreachableError: no answer, or not one of a node. Indefinite.
        RefusedByNodeError: it was not done; definite or not, as it says.
    """
    body = None if fields is None else json.dumps(fields).encode()
    code, content = send(url, method, path, timeout_s, body)
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if code == 200 and isinstance(answer, dict):
        return answer
    if not isinstance(answer, dict) or "error" not in answer:
        raise UnreachableError(f"{url} does not answer as the admin port of a node (HTTP {code})", _REMEDY)
    raise RefusedByNodeError(
        code,
        str(answer["error"]),
        str(answer.get("remedy", "")),
        definite=bool(answer.get("definite", code < 500)),
        retriable=bool(answer.get("retriable", False)),
    )


def get_readiness(url: str, timeout_s: float) -> tuple[bool, str]:
    """Ask a node whether it can serve clients now.

    Returns:
        Whether it can, and its reason in one sentence.

    Raises:
        UsageError, UnreachableError: as `get`.
    """
    code, body = get(url, "/readyz", timeout_s)
    try:
        reason = str(json.loads(body)["reason"])
    except (ValueError, TypeError, KeyError):
        reason = f"HTTP {code}"
    return code == 200, reason


def get_status(url: str, timeout_s: float) -> dict[str, Any]:
    """Ask a node for /v1/status.

    Raises:
        UsageError, UnreachableError: as `get`; also for an answer that is not a node's status.
    """
    code, body = get(url, "/v1/status", timeout_s)
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if code != 200 or not isinstance(answer, dict) or "node_id" not in answer:
        raise UnreachableError(f"{url} does not answer as the admin port of a node (HTTP {code})", _REMEDY)
    return answer


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "http" or not host or not port or parts.path not in ("", "/"):
        raise UsageError(f"--admin {shown(url)} is not the address of an admin port", "give http://host:port")
    return host, port
