"""What the admin port asks of its node, and the two shapes of its answers.

A seam, so that the endpoints know neither Raft nor the state machine. Decides that every answer is JSON and
every error says what to do; keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final, Protocol

from aiohttp import web
from prometheus_client.metrics_core import Metric

from quorum.errors import QuorateError, StaleStepError, UnknownMemberError

#: content type of errors
PROBLEM: Final = "application/problem+json"


class StatusView(Protocol):
    """What every admin port shows, a node's or a broker's. Every call comes from the owner's loop."""

    def status(self) -> Mapping[str, object]:
        """Return what GET /v1/status answers."""

    def readiness(self) -> tuple[bool, str]:
        """Return whether clients can be served now, and the reason in one sentence."""

    def metrics(self) -> Iterable[Metric]:
        """Return the metric families with their values of now."""


class BadInputError(Exception):
    """A request that is not well-formed; it reached nobody."""

    def __init__(self, problem: str, remedy: str, field: str = "") -> None:
        super().__init__(problem)
        self.field = field
        self.problem = problem
        self.remedy = remedy


STATUS_VIEW: Final = web.AppKey[StatusView]("status_view")


def json_answer(
    fields: Mapping[str, object], *, status: int = 200, content_type: str = "application/json"
) -> web.Response:
    """Answer with an object."""
    return web.json_response(dict(fields), status=status, content_type=content_type)


def error_answer(status: int, problem: str, remedy: str, **more: object) -> web.Response:
    """Answer with a problem: what is wrong and what to do about it. Source: RFC 9457."""
    fields = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": problem}
    problem_fields = {**fields, "error": problem, "remedy": remedy, **more}
    return json_answer(problem_fields, status=status, content_type=PROBLEM)


def answer_to(error: QuorateError) -> web.Response:
    """Answer with an error of the node: 404 no member, 409 refused, 412 too late,
    503 try again, 504 outcome unknown."""
    if isinstance(error, UnknownMemberError):
        status = 404
    elif isinstance(error, StaleStepError):
        status = 412
    elif not error.definite:
        status = 504
    else:
        status = 503 if error.retriable else 409
    more = {"definite": error.definite, "retriable": error.retriable}
    return error_answer(status, error.message, error.remedy, **more)
