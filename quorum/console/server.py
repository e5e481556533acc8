"""The console's server: pages, endpoints below /api, and its life.

Decides which endpoints there are and how an action's request is read. Everything that it shows comes from
admin ports and, through extensions, from brokers: it has no rights of its own, and passes the Authorization
of a browser's request on. Soft state: what `Watcher` holds, and the token that pages prove themselves by.

Source: docs/operate/console.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from aiohttp import web

from quorum.admin.reading import Says, fields_of, read_object, read_query
from quorum.admin.server import AdminServer
from quorum.admin.view import BadInputError, error_answer, json_answer
from quorum.config.certificates import RELOAD_S, Certificates
from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.config.tls import TlsSection
from quorum.console import leading, runs, znodes
from quorum.console.extension import Extension, PageCall, Rows, extensions
from quorum.console.files import add_files
from quorum.console.guarding import (
    NAMES,
    READ_ONLY,
    REQUEST_BYTES_MAX,
    TOKEN,
    PageConnection,
    RefusalError,
    add_headers,
    guard,
)
from quorum.console.upstream import Upstream, upstream
from quorum.console.watching import Watcher, overview_fields
from quorum.console.znodes import CALL, WATCHER, Zxid
from quorum.doctor.doctor import Scope
from quorum.errors import AddressInUseError, ConfigError, shown
from quorum.platform.listening import bind

#: how long nothing is sent to a listener at most
HEARTBEAT_S: Final = 15.0
#: between two messages to one listener
PACE_S: Final = 0.1
_TLS_NAME: Final = "console"
_UPSTREAM: Final = web.AppKey[Upstream]("upstream")
#: {name: action}
_ACTIONS: Final = web.AppKey[Any]("actions")
_OPTIONS: Final = web.AppKey["ConsoleOptions"]("options")
_ADDED: Final = web.AppKey[Sequence[Extension]]("added")
OPEN_RECORDS: Final = web.AppKey[bool]("open_records")


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What the command line says.

    Attributes:
        admin: admin ports of nodes; none: the default ones.
        bootstrap: brokers, "host:port,…"; None: those that are registered.
        host, port: where it listens; port 0 takes a free one.
        read_only: whether every change is refused.
        records: whether records of topics may be read.
        results: folder whose folders are recorded runs; None: there is none.
        certificate: files of a certificate and its key, to serve by https; None: by http.
    """

    admin: tuple[str, ...] = ()
    bootstrap: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    read_only: bool = False
    records: bool = True
    results: Path | None = None
    certificate: tuple[Path, Path] | None = None


class AsOfQuery(NamedTuple):
    """Which time is wanted."""

    as_of: Zxid = -1


class MomentQuery(NamedTuple):
    """Of which transaction the time is wanted."""

    zxid: Annotated[int, Says("of the transaction")]


class TimelineQuery(NamedTuple):
    """Which events are wanted."""

    as_of: Zxid = -1
    kinds: Annotated[str, Says("by commas; none: all")] = ""


class Serving(NamedTuple):
    """A console that serves.

    Attributes:
        url: as http://127.0.0.1:8080/.
        watching: ends with an error alone, and then the console is of no use.
    """

    url: str
    watching: asyncio.Task[None]


@contextlib.asynccontextmanager
async def serving(options: ConsoleOptions) -> AsyncIterator[Serving]:
    """Serve the console for as long as the body runs.

    Raises:
        AddressInUseError: the port is taken, or cannot be listened on.
        ConfigError: the certificate or its key cannot be used.
    """
    certificates = _certificates(options)
    added = extensions(options.bootstrap, records=options.records)
    scope = Scope(options.admin, options.bootstrap)
    async with upstream(options.admin or DEFAULT_ADMIN_URLS) as nodes:
        watcher = Watcher(nodes, scope, added, named=bool(options.admin))
        tls = None if certificates is None else certificates.port(_TLS_NAME)
        app = _app(options, nodes, watcher, added)
        server = AdminServer(app, _listener(options), tls, PageConnection)
        await server.start()
        tasks = [watching := asyncio.create_task(watcher.run())]
        if certificates is not None:
            tasks.append(asyncio.create_task(_renew(certificates)))
        try:
            host, port = server.address
            shown_host = f"[{host}]" if ":" in host else host
            scheme = "http" if tls is None else "https"
            yield Serving(f"{scheme}://{shown_host}:{port}/", watching)
        finally:
            watcher.close()
            await server.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in added:
                await each.close()


def _certificates(options: ConsoleOptions) -> Certificates | None:
    if options.certificate is None:
        return None
    return Certificates({_TLS_NAME: TlsSection(*options.certificate, client_auth="none")}, (_TLS_NAME,))


async def _renew(certificates: Certificates) -> None:
    while True:
        await asyncio.sleep(RELOAD_S)
        certificates.reload()


def _listener(options: ConsoleOptions) -> socket.socket:
    # The name is that of two addresses; a page needs one.
    host = "127.0.0.1" if options.host == "localhost" else options.host
    try:
        return bind("--host", (host, options.port))
    except (AddressInUseError, ConfigError) as error:
        told = (
            error.problems[0].problem if isinstance(error, ConfigError) else "another process listens there"
        )
        problem = f"--port {options.port}: cannot listen on {options.host}: {told}"
        remedy = "stop what listens there, or choose another --port; 0 takes a free one"
        raise AddressInUseError(problem, remedy) from error


def _app(
    options: ConsoleOptions, nodes: Upstream, watcher: Watcher, added: Sequence[Extension]
) -> web.Application:
    app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[guard])
    app.on_response_prepare.append(add_headers)
    app[_OPTIONS], app[_UPSTREAM], app[WATCHER] = options, nodes, watcher
    app[TOKEN], app[READ_ONLY] = secrets.token_urlsafe(32), options.read_only
    app[NAMES] = frozenset(("localhost", options.host.lower()))
    app[OPEN_RECORDS] = options.records
    app[runs.RESULTS] = options.results
    app[CALL] = _call
    app[_ADDED] = added
    actions = [
        *znodes.ACTIONS,
        *leading.ACTIONS,
        *(each for extension in added for each in extension.actions),
    ]
    app[_ACTIONS] = {each.name: each for each in actions}
    app.router.add_get("/livez", _get_livez)
    app.router.add_get("/api/session", _get_session)
    app.router.add_get("/api/overview", _get_overview)
    app.router.add_get("/api/events", _get_events)
    app.router.add_get("/api/actions", _get_actions)
    app.router.add_post("/api/actions/{name}", _post_action)
    app.router.add_get("/api/znodes", znodes.get_znode)
    app.router.add_get("/api/znodes/children", znodes.get_children)
    app.router.add_get("/api/znodes/history", znodes.get_history)
    app.router.add_get("/api/timeline", _get_timeline)
    app.router.add_get("/api/moment", _get_moment)
    app.router.add_get("/api/runs", runs.get_runs)
    for extension in added:
        extension.add_routes(app)
    add_files(app)
    return app


def _call(request: web.Request) -> PageCall:
    return PageCall(request.app[_UPSTREAM], request.headers.get("Authorization"), request.app)


async def _get_livez(request: web.Request) -> web.Response:
    return json_answer({"live": True, "watching": request.app[WATCHER].watching})


async def _get_session(request: web.Request) -> web.Response:
    app = request.app
    overview = app[WATCHER].overview or await app[WATCHER].fresh()
    return json_answer(
        {
            "token": app[TOKEN],
            "read_only": app[READ_ONLY],
            "records": app[OPEN_RECORDS],
            "cluster_id": overview.found.cluster_id,
            "actions": sorted(app[_ACTIONS]) if not app[READ_ONLY] else [],
        }
    )


async def _get_overview(request: web.Request) -> web.Response:
    query: AsOfQuery = AsOfQuery(**read_query(request, fields_of(AsOfQuery)))  # type: ignore[arg-type]
    watcher = request.app[WATCHER]
    overview = await watcher.fresh()
    fields = overview_fields(overview, _zxid(watcher))
    if query.as_of >= 0:
        rows = Rows()
        for each in request.app[_ADDED]:
            rows = await each.past_rows(_call(request), query.as_of)
        fields |= {"nodes": [], **rows._asdict(), "zxid": str(query.as_of)}
    return json_answer(fields)


def _zxid(watcher: Watcher) -> int:
    """Return the last transaction that is known."""
    overview = watcher.overview
    nodes = () if overview is None else overview.nodes
    return max(watcher.history.last_zxid, 0, *(int(str(each["zxid"] or 0)) for each in nodes))


async def _get_events(request: web.Request) -> web.StreamResponse:
    watcher = request.app[WATCHER]
    with watcher.listening() as listener:
        if listener is None:
            return error_answer(503, "too many browsers watch", "close one")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while not watcher.closed:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_S):
                        await listener.news.wait()
                    # What comes close together is one message.
                    await asyncio.sleep(PACE_S)
                await response.write(_message(watcher, listener.take()))
        except ConnectionResetError:
            # The browser has gone.
            pass
    return response


def _message(watcher: Watcher, paths: Sequence[str] | None) -> bytes:
    overview, history = watcher.overview, watcher.history
    found = overview.found if overview is not None else None
    worst = found.findings[0] if found is not None and found.verdict != "healthy" else None
    fields = {
        "zxid": str(_zxid(watcher)),
        "first_zxid": str(history.first_zxid),
        "first_ts_ms": history.first_ts_ms,
        "last_ts_ms": history.last_ts_ms,
        "paths": paths,
        "number": overview.number if overview is not None else 0,
        "source": overview.source if overview is not None else None,
        "verdict": found.verdict if found is not None else None,
        "check": worst.check if worst is not None else "",
        "sentence": found.sentence if found is not None else "",
    }
    return b"data: %b\n\n" % json.dumps(fields).encode()


async def _get_moment(request: web.Request) -> web.Response:
    query: MomentQuery = MomentQuery(**read_query(request, fields_of(MomentQuery)))  # type: ignore[arg-type]
    return json_answer({"ts_ms": request.app[WATCHER].history.moment(query.zxid)})


async def _get_timeline(request: web.Request) -> web.Response:
    query: TimelineQuery = TimelineQuery(**read_query(request, fields_of(TimelineQuery)))  # type: ignore[arg-type]
    history = request.app[WATCHER].history
    kinds = {each for each in query.kinds.split(",") if each}
    items: list[dict[str, object]] = []
    for each in reversed(history.events):
        if (query.as_of < 0 or each.zxid <= query.as_of) and (not kinds or each.kind in kinds):
            items.append({**each._asdict(), "zxid": str(each.zxid)})
            if len(items) == _EVENTS_SHOWN:
                break
    first = {"first_zxid": str(history.first_zxid), "caught_up": history.caught_up.is_set()}
    return json_answer({"items": items, **first})


_EVENTS_SHOWN: Final = 500


async def _get_actions(request: web.Request) -> web.Response:
    return json_answer({"items": sorted(request.app[_ACTIONS])})


async def _post_action(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    action = request.app[_ACTIONS].get(name)
    if action is None:
        remedy = f"use one of {', '.join(sorted(request.app[_ACTIONS]))}"
        raise RefusalError(404, f"there is no action {shown(name)}", remedy)
    try:
        given: Any = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"the body is not JSON: {shown(str(error))}", "send a JSON object") from error
    if not isinstance(given, dict):
        raise BadInputError(f"the body is {shown(given)}, not a JSON object", "send a JSON object")
    preview = given.pop("preview", False)
    if not isinstance(preview, bool):
        raise BadInputError(
            f"preview = {shown(preview)} is not true or false", "send preview: true", "preview"
        )
    body = action.fields(**read_object("body", given, fields_of(action.fields)))
    call = _call(request)
    if preview:
        return json_answer({"preview": dict(await action.preview(call, body))})
    return json_answer({"done": dict(await action.carry_out(call, body))})
