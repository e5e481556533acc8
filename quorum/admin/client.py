"""Asks a node's admin port over HTTP, for the commands that show, wait for or change a node's state.

Blocking, one connection per question, no proxies from the environment (a node on loopback must never be asked
through one). Foreign exceptions become ours here. That no connection could be made is definite: nothing was
sent. What fails later leaves open what becomes of a request that changes something. Anything may
listen at an address, so answers are checked for the shape of a node's; what they mean is decided by the
callers. No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, TypeGuard
from urllib.parse import urlsplit

from quorum.config.address import parse_address
from quorum.errors import (
    Fault,
    OutcomeUnknownError,
    QuorateError,
    UnreachableError,
    UsageError,
    printable,
    shown,
)
from quorum.platform.tls import DIALLING, remedy_for_tls

ANSWER_BYTES_MAX = 16 * 1024 * 1024
_PIECE_BYTES: Final = 256 * 1024
#: for a connection, however long the answer may take
CONNECT_TIMEOUT_S = 10.0
#: for one port of several, before the next one is tried
_TRY_TIMEOUT_S: Final = 3.0
NAME_A_NODE: Final = "name the admin port of a node with --admin http://host:port (https:// if it speaks TLS)"
#: statuses of HTTP by which a port says whom it does not answer, and why (guard.py)
_REFUSALS: Final = (401, 403, 421)
_HOST: Final = re.compile(r"[\w.:%-]+")

#: {field: type}
Shape = Mapping[str, type]
#: fields that are read as more than a text; the others may be anything
_STATUS_SHAPE: Final[Shape] = {"node_id": int}
_STATUS_NULLABLE: Final[Shape] = {"term": int, "commit_index": int, "sessions": int, "members": list}
_MEMBER_SHAPE: Final[Shape] = {"node_id": int}
_MEMBER_NULLABLE: Final[Shape] = {
    "address": str,
    "incarnation": str,
    "role": str,
    "voter": bool,
    "refusal": str,
    "match_index": int,
}


#: what every request of this thread, or task, is asked with
_TOKEN: Final = ContextVar("token", default="")


def use_token(path: Path) -> None:
    """Send a token with every request from here on.

    Args:
        path: its file.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--token-file {path} cannot be read: {error}", "name a file with a token"
        ) from error
    if not token or not token.isprintable() or " " in token:
        raise UsageError(f"--token-file {path} holds no token", "name a file with one token in it")
    _TOKEN.set(token)


def token_headers() -> dict[str, str]:
    """Return the headers by which requests prove the token that `use_token` was given."""
    token = _TOKEN.get()
    return {"Authorization": f"Bearer {token}"} if token else {}


def checked_url(url: str) -> str:
    """Return the address of an admin port as requests take it; a UsageError if it is none."""
    _host_and_port(url)
    return url.rstrip("/")


def checked_urls(urls: str) -> tuple[str, ...]:
    """Return the admin ports that a value of `--admin` names, with commas between; "": none.

    Raises:
        UsageError: one is no address, or a value with characters names none.
    """
    found = tuple(checked_url(url.strip()) for url in urls.split(",") if url.strip())
    if urls and not found:
        raise UsageError("--admin names no URL", "give http://host:port of a node's admin port")
    return found


def first_listening(urls: str) -> str:
    """Return the one of some admin ports that is asked: the first that takes a connection.

    Args:
        urls: a value of `--admin`, with commas between. One alone is returned without a try.

    Raises:
        UsageError: one is no address. NotSentError: none of several takes a connection.
    """
    if "," not in urls:
        return urls
    silent = []
    for url in checked_urls(urls):
        try:
            socket.create_connection(_host_and_port(url), timeout=_TRY_TIMEOUT_S).close()
        except OSError as error:
            silent.append(f"{url} ({_reason(error, f'no connection within {_TRY_TIMEOUT_S:g} s')})")
        else:
            return url
    raise NotSentError(f"none can be reached of {', '.join(silent)}", f"start a node, or {NAME_A_NODE}")


def checked_brokers(addresses: str | None) -> str | None:
    """Return a value of `--bootstrap` as it is: addresses of brokers with commas between.

    Args:
        addresses: None: it is not given.

    Raises:
        UsageError: one is no address.
    """
    for text in [] if addresses is None else addresses.split(","):
        try:
            parse_address(text.strip())
        except ValueError as error:
            problem = f"--bootstrap {shown(text.strip())} {error}"
            raise UsageError(problem, "give HOST:PORT of brokers, with commas between") from error
    return addresses


class NotSentError(UnreachableError):
    """A server that could not be connected to; nothing was asked of it."""

    definite = True


class NotAnsweredError(UnreachableError):
    """A server that was asked and gave no answer.

    Attributes:
        reason: why not.
    """

    def __init__(self, url: str, reason: str, remedy: str = "") -> None:
        known = f"look at that node's log, or {NAME_A_NODE}"
        super().__init__(f"{url} did not answer: {reason}", remedy or known)
        self.reason = reason


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


class AdminChange(NamedTuple):
    """A request that changes something, and what to say where no answer says its outcome.

    Attributes:
        method: of HTTP.
        path: what to ask for, as /v1/members.
        answer: {field: type} that the answer of a node has.
        doing: the request in words, as "remove of node 4".
        remedy: how to find out what became of it, and how to ask again.
        fields: the body, a JSON object, if there is one.
    """

    method: str
    path: str
    answer: Shape
    doing: str
    remedy: str
    fields: dict[str, object] | None = None


def get(url: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Send one GET; see `send`."""
    return send(url, "GET", path, timeout_s)


def send(url: str, method: str, path: str, timeout_s: float, body: bytes | None = None) -> tuple[int, bytes]:
    """Send one request.

    Args:
        url: the admin port as http://host:port, or https://host:port.
        method: of HTTP.
        path: what to ask for, as /v1/status.
        timeout_s: for each read; for the connection, too, but at most CONNECT_TIMEOUT_S.
        body: JSON, if there is one.

    Returns:
        Status code and body.
    """
    try:
        with _asked(url, method, path, timeout_s, body) as response:
            content = response.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise _not_answered(url, error, timeout_s) from error
    if len(content) > ANSWER_BYTES_MAX:
        raise NotAnsweredError(url, f"more than {ANSWER_BYTES_MAX} bytes came")
    return response.status, content


def download(url: str, path: str, timeout_s: float, file: IO[bytes]) -> tuple[int, bytes]:
    """Send one GET whose good answer may be long.

    Args:
        url, path, timeout_s: as of `send`.
        file: gets the body of the answer 200.

    Returns:
        Status code, and the body of another answer.
    """
    try:
        with _asked(url, "GET", path, timeout_s, None) as response:
            if response.status != http.HTTPStatus.OK:
                return response.status, response.read(ANSWER_BYTES_MAX)
            while piece := response.read(_PIECE_BYTES):
                file.write(piece)
    except (TimeoutError, ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise _not_answered(url, error, timeout_s) from error
    return response.status, b""


@contextlib.contextmanager
def _asked(
    url: str, method: str, path: str, timeout_s: float, body: bytes | None
) -> Iterator[http.client.HTTPResponse]:
    """Send a request and yield its answer, unread."""
    host, port = _host_and_port(url)
    connect_timeout_s = min(timeout_s, CONNECT_TIMEOUT_S)
    if url.startswith("https"):
        make = DIALLING.get() or ssl.create_default_context
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=connect_timeout_s, context=make()
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=connect_timeout_s)
    try:
        try:
            connection.connect()
        except OSError as error:
            reason = _reason(error, f"no connection within {connect_timeout_s:g} s")
            remedy = f"start the node, or {NAME_A_NODE}"
            if isinstance(error, ssl.SSLError):
                remedy = remedy_for_tls(error)
            raise NotSentError(f"{url} cannot be reached: {reason}", remedy) from error
        connection.sock.settimeout(timeout_s)
        # A change without a body is one, too.
        headers = {} if method == "GET" else {"Content-Type": "application/json"}
        # Health is everybody's to ask, and who answers is not always checked.
        if path != "/readyz":
            headers |= token_headers()
        connection.request(method, path, body, headers)
        yield connection.getresponse()
    finally:
        connection.close()


def _not_answered(url: str, error: OSError | http.client.HTTPException, timeout_s: float) -> NotAnsweredError:
    remedy = remedy_for_tls(error) if isinstance(error, ssl.SSLError) else ""
    return NotAnsweredError(url, _reason(error, f"nothing came within {timeout_s:g} s"), remedy)


def _reason(error: OSError | http.client.HTTPException, overdue: str) -> str:
    """Say why no answer came, perhaps in the words of what listens there."""
    if isinstance(error, TimeoutError):
        return error.strerror or overdue
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(reason.strip() or type(error).__name__)


def ask(url: str, request: AdminChange, timeout_s: float) -> dict[str, Any]:
    """Send a request that changes something and return the node's answer.

    Args:
        url: as in `send`.
        request: what to change.
        timeout_s: after this long without an answer its outcome is unknown. Longer than the node takes to
            find out that it does not know it, it leaves the telling to the node.
    """
    body = None if request.fields is None else json.dumps(request.fields).encode()
    try:
        code, content = send(url, request.method, request.path, timeout_s, body)
    except NotAnsweredError as error:
        raise _outcome_unknown(url, request, error.reason) from error
    answer = _read(content)
    if code in (200, 202) and _fits(answer, request.answer):
        return answer
    # What failed may be something before the node, and it was done: only a node's word counts.
    if code < 400 or not _fits(answer, {"error": str}) or (code >= 500 and "definite" not in answer):
        raise _outcome_unknown(url, request, f"what came is not of a node (HTTP {code})")
    raise RefusedByNodeError(
        code,
        printable(answer["error"]),
        printable(str(answer.get("remedy", ""))),
        definite=bool(answer.get("definite", True)),
        retriable=bool(answer.get("retriable", False)),
    )


def _outcome_unknown(url: str, request: AdminChange, reason: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"outcome unknown: {request.doing} was sent to {url} and not answered: {reason}", request.remedy
    )


def get_readiness(url: str, timeout_s: float) -> tuple[bool, str]:
    """Ask a node whether it can serve clients now.

    Returns:
        Whether it can, and its reason in one sentence.
    """
    code, body = get(url, "/readyz", timeout_s)
    answer = _read(body)
    reason = printable(str(answer["reason"])) if _fits(answer, {"reason": str}) else f"HTTP {code}"
    return code == 200, reason


def get_status(url: str, timeout_s: float) -> dict[str, Any]:
    """Ask a node for /v1/status."""
    code, body = get(url, "/v1/status", timeout_s)
    answer = _read(body)
    if code in (200, 202) and _fits(answer, _STATUS_SHAPE, _STATUS_NULLABLE):
        return answer
    check_let_in(url, code, body)
    raise UnreachableError(f"{url} does not answer as the admin port of a node (HTTP {code})", NAME_A_NODE)


def check_let_in(url: str, code: int, body: bytes) -> None:
    """Raise an UnreachableError with the port's own words if it says that it does not answer this caller.

    Args:
        url: of the port. code, body: what it answered.
    """
    answer = _read(body)
    if code in _REFUSALS and _fits(answer, {"error": str, "remedy": str}):
        raise UnreachableError(f"{url}: {printable(answer['error'])}", printable(answer["remedy"]))


def _read(body: bytes) -> Any:
    """Return the value of a JSON text, None where it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _fits(answer: Any, needed: Shape, nullable: Shape | None = None) -> TypeGuard[dict[str, Any]]:
    """Tell whether a value that came out of JSON is an object with such fields; of members each as well.

    Args:
        answer: anything.
        needed: fields that it has.
        nullable: fields that may be missing or null.
    """
    if not _has(answer, needed, nullable or {}):
        return False
    members = answer.get("members")
    return not isinstance(members, list) or all(
        _has(member, _MEMBER_SHAPE, _MEMBER_NULLABLE) for member in members
    )


def _has(found: Any, needed: Shape, nullable: Shape) -> bool:
    return (
        isinstance(found, dict)
        and all(isinstance(found.get(name), kind) for name, kind in needed.items())
        and all(found.get(name) is None or isinstance(found[name], kind) for name, kind in nullable.items())
    )


def _host_and_port(url: str) -> tuple[str, int]:
    problem = "is not the address of an admin port"
    if "@" in url:
        # What may be a password is neither used nor shown.
        masked = shown(re.sub(r"^(\w+://)?.*@", r"\1***@", url, flags=re.DOTALL))
        remedy = "leave out what comes before the @: an admin port asks for no name or password"
        raise UsageError(f"--admin {masked} {problem}", remedy)
    try:
        return _address(url)
    except ValueError as error:
        remedy = "give http://host:port, an IPv6 address in brackets, as http://[::1]:8181"
        raise UsageError(f"--admin {shown(url)} {problem}", remedy) from error


def _address(url: str) -> tuple[str, int]:
    """Read host and port of a URL."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    rest = f"{parts.path}{parts.query}{parts.fragment}"
    is_http = parts.scheme in ("http", "https") and rest in ("", "/")
    if not is_http or not host or not port or not _HOST.fullmatch(host):
        raise ValueError("it is not http://host:port")
    # As the resolver will do: an empty label or one over 63 characters is found here.
    host.encode("idna")
    return host, port
