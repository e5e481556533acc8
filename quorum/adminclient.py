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

from quorum.errors import UnreachableError, UsageError, shown

ANSWER_BYTES_MAX = 16 * 1024 * 1024
_REMEDY = "start the node, or name another one with --admin http://host:port"


def get(url: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Send one GET.

    Args:
        url: the admin port as http://host:port.
        path: what to ask for, as /v1/status.
        timeout_s: for the connection, and again for each read.

    Returns:
        Status code and body.

    Raises:
        UsageError: url is not http://host:port.
        UnreachableError: no answer, or none within ANSWER_BYTES_MAX. Retriable.
    """
    host, port = _host_and_port(url)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
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
