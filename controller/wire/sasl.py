"""The two requests by which a connection proves whose it is: SaslHandshake and SaslAuthenticate.

`SaslGate` is the broker's side of one connection: it answers these requests and says when to close.
`sasl_requests` and the readers beside it are the client's. The proof itself is in `scram`. A refusal carries
Kafka's error code and what to do, and never a secret.
Source: KIP-43, KIP-152; SaslServerAuthenticator (Kafka 3.9).
"""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse
from kio.serial import entity_writer
from kio.static.primitive import i64Timedelta
from kio.static.protocol import Entity

from controller.wire.codes import ErrorCode, code_name
from controller.wire.decoding import Buffer, decode
from controller.wire.scram import MECHANISM, Exchange, SaslServer, ScramError
from quorum.errors import shown

SASL_HANDSHAKE: Final = 17
SASL_HANDSHAKE_VERSION: Final = 1
SASL_AUTHENTICATE: Final = 36
SASL_AUTHENTICATE_VERSION: Final = 2


class SaslAnswer(NamedTuple):
    """The answer to a request of the handshake."""

    body: bytes
    #: Whether the connection must be closed once the answer is sent.
    close: bool


class SaslGate:
    """What one connection must pass before anything else is answered."""

    def __init__(self, server: SaslServer) -> None:
        self._server = server
        self._exchange: Exchange | None = None
        self.mechanism = ""
        #: For how long the proof holds, in milliseconds; 0: for ever.
        self.lifetime_ms = 0
        #: Why the connection was refused, for the log; "" as long as it was not.
        self.refusal = ""

    @property
    def authenticated(self) -> bool:
        """Whether the client has proved what it must."""
        return self._exchange is not None and self._exchange.authenticated

    @property
    def user(self) -> str:
        """Whose proof it is."""
        return "" if self._exchange is None else self._exchange.user

    def handle_handshake(self, body: Buffer, version: int = SASL_HANDSHAKE_VERSION) -> SaslAnswer:
        """Answer SaslHandshake."""
        mechanism = decode(_request(SASL_HANDSHAKE, version), body).mechanism
        mechanisms, code = tuple(self._server.mechanisms), ErrorCode.NONE
        if self._exchange is not None:
            code = self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "a second SaslHandshake")
        elif mechanism not in mechanisms:
            code = self._refuse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {shown(mechanism)}")
        else:
            self.mechanism = mechanism
            self._exchange = self._server.exchange(mechanism)
        response = _response(SASL_HANDSHAKE, version)(
            error_code=KioErrorCode(int(code)), mechanisms=mechanisms
        )
        return SaslAnswer(_encode(response), close=code is not ErrorCode.NONE)

    def handle_authenticate(
        self,
        body: Buffer,
        version: int = SASL_AUTHENTICATE_VERSION,
        *,
        lifetime_ms: int = 0,
        must_be: tuple[str, str] | None = None,
    ) -> SaslAnswer:
        """Answer SaslAuthenticate.

        Args:
            body: of the request. version: of it.
            lifetime_ms: after which every proof must be repeated, 0: never; one may end before that.
            must_be: user and mechanism of an earlier proof, which this one repeats; None: it is the first.
        """
        message = decode(_request(SASL_AUTHENTICATE, version), body).auth_bytes
        code, answer = ErrorCode.NONE, b""
        if self._exchange is None or self._exchange.authenticated:
            code = self._refuse(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate out of turn")
        else:
            try:
                answer = self._exchange.answer(message)
            except ScramError as error:
                code = self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        if self.authenticated and must_be not in (None, (self.user, self.mechanism)):
            why = "another user or mechanism than at first, during re-authentication"
            code, answer = self._refuse(ErrorCode.SASL_AUTHENTICATION_FAILED, why), b""
        values: dict[str, object] = {
            "error_code": KioErrorCode(int(code)),
            "error_message": self.refusal or None,
            "auth_bytes": answer,
        }
        if self._exchange is not None and self.authenticated:
            bounds = [each for each in (lifetime_ms, self._exchange.lifetime_ms) if each]
            self.lifetime_ms = min(bounds, default=0)
            if version:
                values["session_lifetime"] = i64Timedelta.parse(timedelta(milliseconds=self.lifetime_ms))
        response = _response(SASL_AUTHENTICATE, version)(**values)
        return SaslAnswer(_encode(response), close=code is not ErrorCode.NONE)

    def _refuse(self, code: ErrorCode, why: str) -> ErrorCode:
        self.refusal = why
        return code


def handshake_request(mechanism: str = MECHANISM) -> bytes:
    """Return the body of SaslHandshake 1."""
    return _encode(SaslHandshakeRequest(mechanism=mechanism))


def authenticate_request(message: bytes) -> bytes:
    """Return the body of SaslAuthenticate 2 that carries a message of the exchange."""
    return _encode(SaslAuthenticateRequest(auth_bytes=message))


def check_handshake_response(body: Buffer, mechanism: str) -> None:
    """Read the answer to SaslHandshake 1."""
    response = decode(SaslHandshakeResponse, body)
    code = int(response.error_code)
    if code != ErrorCode.NONE:
        offered = ", ".join(map(shown, response.mechanisms)) or "none"
        remedy = f"dial a listener that offers it; this one offers: {offered}"
        raise ScramError(f"the broker refuses {mechanism}: {code_name(code)}", remedy)


def read_authenticate_response(body: Buffer, remedy: str) -> tuple[bytes, int]:
    """Read the answer to SaslAuthenticate 2.

    Returns:
        The broker's message of the exchange, and for how many milliseconds the proof holds, 0: for ever.
    """
    response = decode(SaslAuthenticateResponse, body)
    code = int(response.error_code)
    if code != ErrorCode.NONE:
        story = f"the broker refuses with {code_name(code)}: {shown(response.error_message)}"
        raise ScramError(story, remedy)
    return response.auth_bytes, response.session_lifetime // timedelta(milliseconds=1)


def _request(api_key: int, version: int) -> Any:
    return load_request_schema(api_key, version)


def _response(api_key: int, version: int) -> Any:
    return load_response_schema(api_key, version)


def _encode(message: Entity) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
