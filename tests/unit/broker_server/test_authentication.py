"""One connection's proofs: whose they are, and for how long they hold."""

from __future__ import annotations

import hashlib

from broker.server.authentication import Authentication
from broker.server.requests import Request
from broker.server.users import UserProofs
from broker.wire.codec import decode_response, encode_request
from controller.wire.apis import ApiKey
from quorum.metadata.user_records import Mechanism, ScramCredential

MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
HOUR_MS = 3_600_000
USERS = {
    name: {Mechanism.SCRAM_SHA_256: ScramCredential.of_password(Mechanism.SCRAM_SHA_256, name, b"salt", 4096)}
    for name in ("eve", "admin")
}


def connection(reauth_ms: int = HOUR_MS) -> Authentication:
    proofs = UserProofs(
        MECHANISMS, lambda user: USERS.get(user, {}), lambda text: hashlib.sha256(text.encode()).digest()
    )
    return Authentication(proofs, reauth_ms)


def code_of(gate: Authentication, api_key: ApiKey, version: int, values: dict[str, object]) -> int:
    body = memoryview(encode_request(api_key, version, values))
    answer = gate.answer(Request(api_key, version, 1, "c", body, len(body), 0.0))
    return int(decode_response(api_key, version, answer.body).error_code)


def shake(gate: Authentication, mechanism: str) -> int:
    return code_of(gate, ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism})


def send(gate: Authentication, message: bytes) -> int:
    return code_of(gate, ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})


def as_eve() -> Authentication:
    gate = connection()
    assert shake(gate, "PLAIN") == 0
    assert send(gate, b"\0eve\0eve") == 0
    assert gate.principal == "User:eve"
    return gate


def test_a_claim_without_its_proof_changes_nobodys_name() -> None:
    gate = as_eve()
    assert shake(gate, "SCRAM-SHA-256") == 0
    assert send(gate, b"n,,n=admin,r=abc") == 0, "the first message alone proves nothing"
    assert (gate.proved, gate.principal) == (True, "User:eve")


def test_a_wrong_password_changes_nobodys_name() -> None:
    gate = as_eve()
    assert shake(gate, "PLAIN") == 0
    assert send(gate, b"\0admin\0guess") == 58
    assert gate.principal == "User:eve"


def test_nobody_goes_on_as_another_user() -> None:
    gate = as_eve()
    assert shake(gate, "PLAIN") == 0
    assert send(gate, b"\0admin\0admin") == 58
    assert gate.principal == "User:eve"


def test_nothing_is_served_before_a_proof_or_after_its_end() -> None:
    gate = connection(reauth_ms=1)
    assert gate.problem(ApiKey.API_VERSIONS) is None
    assert gate.problem(ApiKey.METADATA) is not None
    assert shake(gate, "PLAIN") == 0
    assert gate.problem(ApiKey.METADATA) is not None
    assert send(gate, b"\0eve\0eve") == 0
    while gate.problem(ApiKey.METADATA) is None:
        pass
    assert "out of date" in str(gate.problem(ApiKey.METADATA))


class Token:
    """An exchange by a token that lasts ten minutes."""

    user = "eve"
    lifetime_ms = 600_000

    def __init__(self) -> None:
        self.authenticated = False

    def answer(self, _message: bytes) -> bytes:
        self.authenticated = True
        return b""


def test_a_token_ends_its_proof_and_is_checked_off_the_loop() -> None:
    for reauth_ms, expected_ms in ((0, 600_000), (HOUR_MS, 600_000), (1000, 1000)):
        gate = Authentication(UserProofs(("OAUTHBEARER",), lambda _: {}, str.encode, Token), reauth_ms)
        assert shake(gate, "OAUTHBEARER") == 0
        body = memoryview(encode_request(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"token"}))
        request = Request(ApiKey.SASL_AUTHENTICATE, 2, 1, "c", body, len(body), 0.0)
        # Keys may have to be read for it.
        assert gate.takes_long(request)
        answer = decode_response(ApiKey.SASL_AUTHENTICATE, 2, gate.answer(request).body)
        assert answer.session_lifetime.total_seconds() * 1000 == expected_ms
        assert gate.problem(ApiKey.METADATA) is None
        # It may be repeated on this connection.
        assert shake(gate, "OAUTHBEARER") == 0
