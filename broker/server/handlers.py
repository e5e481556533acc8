"""The way from a request's frame to the body of its response.

Which requests there are is decided in broker.server.table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from broker.core.access.asking import UNLIMITED, Access
from broker.core.access.lists import Principal
from broker.server.audit import RequestAudit
from broker.server.guards import guarded, with_refused
from broker.server.requests import Answer, Call, Handler, Request, Response, Served
from broker.server.services import BrokerServices
from broker.server.table import FOR_BROKERS, FOR_CLIENTS, FOR_GUARDED_CLIENTS
from broker.wire.codec import (
    REQUEST_ITEMS_MAX,
    LongResponse,
    Values,
    decode_request,
    encode_response,
    is_long,
)
from controller.core.brokers import CLIENT_LISTENER
from controller.wire.decoding import ANY_NUMBER


class ApiHandlers:
    """The requests of one listener, carried out by one broker."""

    def __init__(
        self, services: BrokerServices, *, for_brokers: bool, listener: str = CLIENT_LISTENER
    ) -> None:
        """Serve the broker listener (`for_brokers`) or a listener of clients, by its name."""
        self._listener = listener
        self._services = services
        #: None: nothing is noted
        self._audit = None if services.audit is None else RequestAudit(services.audit)
        self._for_brokers = for_brokers
        #: A broker fetches every partition that it follows by one request.
        self._items_max = ANY_NUMBER if for_brokers else REQUEST_ITEMS_MAX
        for_clients = FOR_CLIENTS if services.authorizer is None else FOR_GUARDED_CLIENTS
        self.served: Mapping[int, Served] = FOR_BROKERS if for_brokers else for_clients

    def handle(self, request: Request) -> Response | Awaitable[Response]:
        """Carry a request out; see broker.server.requests.Api."""
        records: list[memoryview | None] = []
        body = decode_request(
            request.api_key, request.api_version, request.body, items_max=self._items_max, records=records
        )
        access: Access = UNLIMITED
        refused: Values = {}
        authorizer = None if self._for_brokers else self._services.authorizer
        if authorizer is not None:
            access = Access(authorizer.lists, Principal(request.principal, request.client_host))
            if self._audit is not None:
                access = access._replace(on_denied=self._audit.denials(request))
        call = Call(request, body, self._for_brokers, records, self._listener, access)
        if authorizer is not None:
            left, refused = guarded(self._services, call)
            if left is None:
                return _encode(call, refused)
            call = left
        row = self.served[request.api_key].row
        handler = row.handler
        assert handler is not None, "the connection answers what is about it"
        if row.waits:
            return self._answer_later(handler, call, refused)
        answer = handler(self._services, call)
        assert not isinstance(answer, Awaitable)
        return self._encode(call, with_refused(answer, refused))

    async def _answer_later(self, handler: Handler, call: Call, refused: Values) -> Response:
        # The handler begins in here: a connection may end before its request has begun.
        answer = handler(self._services, call)
        return self._encode(
            call, with_refused(await answer if isinstance(answer, Awaitable) else answer, refused)
        )

    def _encode(self, call: Call, answer: Answer) -> Response:
        if self._audit is not None:
            answer = self._audit.answered(call.request, call.body, answer, from_broker=self._for_brokers)
        return _encode(call, answer)


def _encode(call: Call, answer: Answer) -> Response:
    if answer is None or isinstance(answer, list):
        return answer
    if is_long(answer):
        return LongResponse(call.request.api_key, call.request.api_version, answer)
    return [encode_response(call.request.api_key, call.request.api_version, answer)]
