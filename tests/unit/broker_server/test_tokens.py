"""Tokens of OAUTHBEARER: which are believed, what refused clients get, and when keys are read again."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.config.sasl import SaslSection
from broker.server import tokens
from broker.server.tokens import KeySet, TokenExchange, TokenProofs, read_keys
from controller.wire.scram import ScramError
from tests.support.certificates import Authority
from tests.support.tokens import AUDIENCE, ISSUER, Issuer


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "keys.json")


@pytest.fixture(scope="module")
def proofs(issuer: Issuer) -> TokenProofs:
    return TokenProofs(settings(issuer))


def settings(issuer: Issuer, **more: Any) -> SaslSection:
    expected = {"oauthbearer_expected_audience": (AUDIENCE,), "oauthbearer_expected_issuer": ISSUER}
    return SaslSection(oauthbearer_jwks_endpoint_url=issuer.url, **{**expected, **more})


def message(token: str, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


@pytest.mark.parametrize("kid", ["rsa", "ec"])
def test_a_signed_token_says_who_and_until_when(issuer: Issuer, proofs: TokenProofs, kid: str) -> None:
    exchange = TokenExchange(proofs)
    token = issuer.token(kid=kid, exp=time.time() + 60, aud=["x", AUDIENCE])
    assert exchange.answer(message(token, "n,a=alice,", "traceId=7\x01")) == b""
    assert (exchange.authenticated, exchange.user) == (True, "alice")
    assert 50_000 < exchange.lifetime_ms <= 60_000


REFUSED: dict[str, dict[str, Any]] = {
    "no audience": {"aud": None},
    "another audience": {"aud": "others"},
    "another issuer": {"iss": "https://evil.test"},
    "no issuer": {"iss": None},
    "out of date": {"exp": 1_000_000_000},
    "just out of date": {"exp": time.time() - 5},
    "without an end": {"exp": None},
    "not yet": {"nbf": time.time() + 900},
    "nobody": {"sub": None},
    "an empty name": {"sub": ""},
    "a name that is none": {"sub": 7},
    "an unknown key": {"kid": "lost", "by": "rsa"},
    "no key id": {"kid": None},
    "the other key": {"kid": "ec", "by": "rsa", "alg": "RS256"},
    "another hash": {"alg": "RS512"},
    "no signature": {"alg": "none"},
    "a shared secret": {"alg": "HS256"},
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_tokens_are_refused_in_two_steps(issuer: Issuer, proofs: TokenProofs, case: str) -> None:
    exchange = TokenExchange(proofs)
    token = issuer.token(**REFUSED[case])
    assert json.loads(exchange.answer(message(token))) == {"status": "invalid_token"}
    assert not exchange.authenticated
    with pytest.raises(ScramError) as told:
        exchange.answer(b"\x01")
    assert not any(part in str(told.value) for part in token.split(".") if part)


def test_a_changed_signature_is_refused(issuer: Issuer, proofs: TokenProofs) -> None:
    head, claims, signature = issuer.token().split(".")
    other = issuer.token("mallory").split(".")[1]
    with pytest.raises(ScramError, match="its signature is wrong"):
        proofs.check(f"{head}.{other}.{signature}")
    assert proofs.check(f"{head}.{claims}.{signature}")[0] == "alice"


@pytest.mark.parametrize(
    "sent",
    [
        *(b"", b"\x01", b"n,,\x01auth=Basic x\x01\x01", b"p=x,,\x01auth=Bearer x\x01\x01", b"n,,\x01\x01"),
        *(b"n,,\x01auth=Bearer x\x01auth=Bearer x\x01\x01", b"n,,\x01auth=Bearer x\x01", b"\xff" * 100),
    ],
)
def test_a_malformed_message_ends_the_exchange(proofs: TokenProofs, sent: bytes) -> None:
    with pytest.raises(ScramError, match="Invalid OAUTHBEARER message"):
        TokenExchange(proofs).answer(sent)


def test_another_identity_than_the_tokens_is_refused(issuer: Issuer, proofs: TokenProofs) -> None:
    with pytest.raises(ScramError, match="another identity"):
        TokenExchange(proofs).answer(message(issuer.token(), "n,a=root,"))


def test_settings_choose_the_claim_and_what_is_expected(issuer: Issuer) -> None:
    chosen = settings(
        issuer,
        oauthbearer_sub_claim_name="client_id",
        oauthbearer_expected_audience=(),
        oauthbearer_expected_issuer="",
    )
    assert TokenProofs(chosen).check(issuer.token(client_id="app", aud=None, iss=None, sub=None))[0] == "app"


def test_unknown_key_ids_have_the_set_read_at_a_bounded_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, reads = 1000.0, 0
    monkeypatch.setattr("broker.server.tokens.time.monotonic", lambda: now_s)
    issuer = Issuer(tmp_path / "keys.json")
    keys = KeySet(issuer.url)
    fetch = keys._fetch

    def counted() -> bytes:
        nonlocal reads
        reads += 1
        return fetch()

    monkeypatch.setattr(keys, "_fetch", counted)
    assert keys.find("rsa") is not None
    issuer.add_rsa("new")
    assert [keys.find("new") for _ in range(50)] == [None] * 50
    assert reads == 1
    now_s += tokens.KEYS_READ_MIN_S
    assert keys.find("new") is not None
    # What cannot be read leaves what was there.
    issuer.file.write_text("{}")
    now_s += tokens.KEYS_AGE_MAX_S
    assert keys.find("new") is not None
    assert reads == 3


def test_a_known_key_waits_for_no_reading_of_the_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr("broker.server.tokens.time.monotonic", lambda: now_s)
    issuer = Issuer(tmp_path / "keys.json")
    keys = KeySet(issuer.url)
    assert keys.find("rsa") is not None
    fetch, begun, ended = keys._fetch, threading.Event(), threading.Event()

    def hanging() -> bytes:
        begun.set()
        assert ended.wait(30)
        return fetch()

    monkeypatch.setattr(keys, "_fetch", hanging)
    now_s += tokens.KEYS_READ_MIN_S
    other = threading.Thread(target=keys.find, args=("lost",))
    other.start()
    assert begun.wait(30)
    found: list[object] = []
    mine = threading.Thread(target=lambda: found.append(keys.find("rsa")))
    mine.start()
    mine.join(5)
    at_once = list(found)
    ended.set()
    other.join()
    mine.join()
    assert len(at_once) == 1
    assert at_once[0] is not None


def test_keys_that_sign_nothing_here_do_not_count(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "keys.json")
    issuer.add_rsa("short", bits=1024)
    rows = json.loads(issuer.file.read_text())["keys"]
    rows += [{"kty": "oct", "k": "a2V5", "kid": "shared"}, {"kty": "RSA", "kid": "broken"}, 7, {"kid": "x"}]
    rows += [{**rows[0], "kid": "sealed", "use": "enc"}, {**rows[0], "kid": "other", "alg": "RS512"}]
    assert sorted(read_keys(json.dumps({"keys": rows}).encode())) == ["ec", "rsa"]
    for content in (b"[]", b"{}", b'{"keys": []}', b"\xff"):
        with pytest.raises(ValueError, match=r"it |codec|Expecting"):
            read_keys(content)


@pytest.fixture
def https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """An address of keys by TLS, and the authority that it is signed by."""
    authority = Authority(tmp_path / "pki")
    issuer = Issuer(tmp_path / "keys.json")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/keys" else 302)
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(issuer.file.read_bytes())

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("issuer"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", authority.file
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_come_by_https_from_who_is_believed(
    https: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, authority = https
    assert KeySet(f"{url}/keys").find("rsa") is None
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    assert KeySet(f"{url}/keys").find("rsa") is not None
    # A redirection is not followed.
    assert KeySet(f"{url}/moved").find("rsa") is None
