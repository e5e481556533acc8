"""The endpoints of the admin port.

A new endpoint is one row of ENDPOINTS and its handler, which reads or asks the node through AdminView;
unknown paths and wrong methods are answered from the same table. Every answer but /metrics is JSON,
errors as ``{"error": ..., "remedy": ...}``. Decides nothing about the node and keeps no state.

Source: the architecture's table of the admin port; RFC 9110 for status codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from aiohttp import web
from prometheus_client.metrics_core import Metric

from quorum.admin.metrics import CONTENT_TYPE, MetricsPage

#: Largest body of a request; every command fits in a few hundred bytes.
REQUEST_BYTES_MAX: Final = 64 * 1024


class AdminView(Protocol):
    """What the admin port asks of its node. Every call comes from the node's loop and returns at once."""

    def status(self) -> Mapping[str, object]:
        """Return what GET /v1/status answers.

        Returns:
            node_id, cluster, cluster_id, role, term, leader_id, commit_index, applied_index, zxid,
            state_digest, sessions, and members: a list of node_id, address, role, match_index.
        """

    def readiness(self) -> tuple[bool, str]:
        """Return whether clients can be served now, and the reason in one sentence."""

    def metrics(self) -> Iterable[Metric]:
        """Return the node's metric families with their values of now."""


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint(NamedTuple):
    """One row of the table."""

    method: str
    path: str
    handler: Handler


_VIEW: Final = web.AppKey[AdminView]("view")
_METRICS: Final = web.AppKey[MetricsPage]("metrics")


async def _get_livez(_request: web.Request) -> web.Response:
    """The loop runs and answers; everything else is /readyz."""
    return _json({"live": True})


async def _get_readyz(request: web.Request) -> web.Response:
    ready, reason = request.app[_VIEW].readiness()
    return _json({"ready": ready, "reason": reason}, status=200 if ready else 503)


async def _get_metrics(request: web.Request) -> web.Response:
    return web.Response(body=request.app[_METRICS].render(), headers={"Content-Type": CONTENT_TYPE})


async def _get_status(request: web.Request) -> web.Response:
    return _json(request.app[_VIEW].status())


#: Every endpoint of the admin port. GET answers HEAD, too.
ENDPOINTS: Final = (
    Endpoint("GET", "/livez", _get_livez),
    Endpoint("GET", "/readyz", _get_readyz),
    Endpoint("GET", "/metrics", _get_metrics),
    Endpoint("GET", "/v1/status", _get_status),
)


def build_app(view: AdminView) -> web.Application:
    """Return the application of one node's admin port."""
    app = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[_answer_errors_in_json])
    app[_VIEW] = view
    app[_METRICS] = MetricsPage(view.metrics)
    for endpoint in ENDPOINTS:
        app.router.add_route(endpoint.method, endpoint.path, endpoint.handler)
        if endpoint.method == "GET":
            app.router.add_route("HEAD", endpoint.path, endpoint.handler)
    app.on_response_prepare.append(_forbid_caching)
    return app


@web.middleware
async def _answer_errors_in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPNotFound:
        known = [f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS]
        remedy = "use one of the known endpoints"
        return _error(404, f"nothing is at {request.path}", remedy, known=known)
    except web.HTTPMethodNotAllowed as error:
        allowed = sorted(error.allowed_methods)
        response = _error(
            405, f"{request.path} does not take {request.method}", f"use {' or '.join(allowed)}"
        )
        response.headers["Allow"] = ", ".join(allowed)
        return response
    except web.HTTPRequestEntityTooLarge:
        problem = f"the body is larger than {REQUEST_BYTES_MAX} bytes"
        return _error(413, problem, "send less")
    except web.HTTPException as error:
        return _error(error.status, error.reason, "")


async def _forbid_caching(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Cache-Control"] = "no-store"


def _json(fields: Mapping[str, object], *, status: int = 200) -> web.Response:
    return web.json_response(dict(fields), status=status)


def _error(status: int, problem: str, remedy: str, **more: object) -> web.Response:
    return _json({"error": problem, "remedy": remedy, **more}, status=status)
