"""OAUTHBEARER: a signed token says who a client is, and until when.

Decides which tokens are believed: signed by RS256 or ES256 with a key of the set that the settings name, for
this audience, by this issuer, not out of date. The set is read again for a key id that it lacks, but not more
often than every KEYS_READ_MIN_S; a set that cannot be read leaves the one before. Both take time, so all of
it runs on threads, never on the loop. Nothing of a token is kept, logged or answered. Soft state only.
Source: RFC 7628, RFC 7517, RFC 8725; KIP-255, KIP-368, KIP-768; OAuthBearerSaslServer (Kafka 3.9).
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import ssl
import threading
import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import jwt

from broker.config.sasl import OAUTHBEARER, SaslSection
from controller.wire.scram import ScramError

log = logging.getLogger("quorate.security")

ALGORITHMS: Final = ("RS256", "ES256")
#: between two readings of the set, however many key ids are unknown
KEYS_READ_MIN_S: Final = 10.0
#: after so long a set is read again, so that keys that were withdrawn count no more
KEYS_AGE_MAX_S: Final = 3600.0
FETCH_TIMEOUT_S: Final = 5.0
KEYS_BYTES_MAX: Final = 1024 * 1024
#: how far the clocks of issuer and broker may differ; not for the end of a token
CLOCK_SKEW_S: Final = 30.0
#: {kty and crv of a key: what it signs by}
_ALGORITHM_OF: Final = {"RSA None": "RS256", "EC P-256": "ES256"}
_RSA_BITS_MIN: Final = 2048
#: RFC 7628, 3.1: header, then pairs, each ended by \x01
_MESSAGE: Final = re.compile(rb"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)*)\x01")
_TOKEN: Final = re.compile(rb"[Bb]earer +([A-Za-z0-9_.~+/=-]+)")
#: what a client gets whose token is refused; it answers with \x01
_REFUSED: Final = json.dumps({"status": "invalid_token"}).encode()


class KeySet:
    """The keys of one issuer, by their ids."""

    def __init__(self, url: str) -> None:
        """Read nothing yet.

        Args:
            url: file:///… or https://…, of a JSON Web Key Set.
        """
        self._url = url
        self._keys: dict[str, jwt.PyJWK] = {}
        self._lock = threading.Lock()
        self._read_s = float("-inf")
        #: what was warned of; "": nothing
        self._problem = ""

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key; may read the set, which takes at most FETCH_TIMEOUT_S for each step.

        Whose key is known waits for nobody who names another one.
        """
        known = self._keys.get(key_id)
        if known is not None and time.monotonic() - self._read_s < KEYS_AGE_MAX_S:
            return known
        with self._lock:
            age_s = time.monotonic() - self._read_s
            if age_s >= KEYS_AGE_MAX_S or (key_id not in self._keys and age_s >= KEYS_READ_MIN_S):
                self._read_s = time.monotonic()
                self._read()
            return self._keys.get(key_id)

    def _read(self) -> None:
        try:
            keys = read_keys(self._fetch())
        except (OSError, http.client.HTTPException, ValueError) as error:
            told = f"{type(error).__name__}: {error}"
            if told != self._problem:
                log.warning("the keys of %s stay as they were: %s", self._url, told)
            self._problem = told
            return
        if self._problem or keys.keys() != self._keys.keys():
            log.info("the keys of %s are read: %s", self._url, ", ".join(keys))
        self._problem, self._keys = "", keys

    def _fetch(self) -> bytes:
        parts = urlsplit(self._url)
        if parts.scheme == "file":
            with Path(unquote(parts.path)).open("rb") as file:
                return _bounded(file.read(KEYS_BYTES_MAX + 1))
        connection = http.client.HTTPSConnection(
            str(parts.hostname), parts.port, timeout=FETCH_TIMEOUT_S, context=ssl.create_default_context()
        )
        try:
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            # No redirection is followed: it might leave TLS.
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            return _bounded(answer.read(KEYS_BYTES_MAX + 1))
        finally:
            connection.close()


def _bounded(content: bytes) -> bytes:
    if len(content) > KEYS_BYTES_MAX:
        raise ValueError(f"it has more than {KEYS_BYTES_MAX} bytes")
    return content


def read_keys(content: bytes) -> dict[str, jwt.PyJWK]:
    """Return {key id: key} of a JSON Web Key Set: RSA of 2048 bits or more, and EC on P-256, for signatures.

    Raises:
        ValueError: it is no such set, or none of its keys can be used.
    """
    fields = json.loads(content)
    rows = fields.get("keys") if isinstance(fields, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it is no JSON Web Key Set")
    found: dict[str, jwt.PyJWK] = {}
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("kid"), str) or row.get("use", "sig") != "sig":
            continue
        algorithm = _ALGORITHM_OF.get(f"{row.get('kty')} {row.get('crv')}")
        if algorithm is None or row.get("alg", algorithm) != algorithm:
            continue
        try:
            key = jwt.PyJWK(row, algorithm=algorithm)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        if algorithm == "ES256" or key.key.key_size >= _RSA_BITS_MIN:
            found[row["kid"]] = key
    if not found:
        raise ValueError("it has no key of RS256 or ES256 with an id")
    return found


class TokenProofs:
    """What makes a token count at a broker."""

    def __init__(self, settings: SaslSection) -> None:
        """Take these settings, with an address of keys."""
        self._settings = settings
        self._keys = KeySet(settings.oauthbearer_jwks_endpoint_url)

    def check(self, token: str) -> tuple[str, int]:
        """Return whose a token is, and for how many milliseconds from now; may take a while.

        Raises:
            ScramError: it is not believed; says why, without anything of the token.
        """
        settings = self._settings
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            key = self._keys.find(key_id) if isinstance(key_id, str) else None
            if key is None:
                raise ScramError("the token names no key of the set, by its kid")
            claims: dict[str, object] = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=settings.oauthbearer_expected_audience or None,
                issuer=settings.oauthbearer_expected_issuer or None,
                leeway=CLOCK_SKEW_S,
                options={
                    "require": ["exp", settings.oauthbearer_sub_claim_name],
                    "verify_aud": bool(settings.oauthbearer_expected_audience),
                    "verify_iss": bool(settings.oauthbearer_expected_issuer),
                    # Another claim may name the principal.
                    "verify_sub": False,
                },
            )
        except jwt.InvalidTokenError as error:
            raise ScramError(f"the token is refused: {_why(error)}") from None
        name = claims[settings.oauthbearer_sub_claim_name]
        if not isinstance(name, str) or not name:
            raise ScramError(f"the token's {settings.oauthbearer_sub_claim_name} is no name")
        left_ms = int((float(str(claims["exp"])) - time.time()) * 1000)
        if left_ms <= 0:
            raise ScramError("the token is refused: it has expired")
        return name, left_ms


#: {kind of error: what it says}; the first that fits
_WHY: Final[dict[type[jwt.InvalidTokenError], str]] = {
    jwt.ExpiredSignatureError: "it has expired",
    jwt.ImmatureSignatureError: "it does not count yet, by its nbf or iat",
    jwt.InvalidAudienceError: "it is for another audience (sasl.oauthbearer_expected_audience)",
    jwt.InvalidIssuerError: "it is from another issuer (sasl.oauthbearer_expected_issuer)",
    jwt.InvalidSignatureError: "its signature is wrong",
    jwt.InvalidAlgorithmError: "it is signed by an algorithm that does not count",
}


def _why(error: jwt.InvalidTokenError) -> str:
    """Say what is wrong by the kind of the error alone: its text may quote the token."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it has no {error.claim}"
    return next((told for kind, told in _WHY.items() if isinstance(error, kind)), "it is malformed")


class TokenExchange:
    """OAUTHBEARER: a token; and, where it is refused, the client's word that it knows."""

    def __init__(self, proofs: TokenProofs) -> None:
        self._proofs = proofs
        #: why the token is refused; "": it is not
        self._refusal = ""
        self.user = ""
        self.authenticated = False
        self.lifetime_ms = 0

    def answer(self, message: bytes) -> bytes:
        """Check a token; takes milliseconds, or as long as the set is read."""
        if self._refusal:
            raise ScramError(self._refusal, "get another token")
        matched = _MESSAGE.fullmatch(message)
        pairs = [] if matched is None else [each.partition(b"=") for each in matched[2].split(b"\x01")]
        given = [value for key, _, value in pairs if key == b"auth"]
        token = _TOKEN.fullmatch(given[0]) if len(given) == 1 else None
        if matched is None or token is None:
            raise ScramError(f"Invalid {OAUTHBEARER} message", "the client must follow RFC 7628")
        try:
            self.user, self.lifetime_ms = self._proofs.check(token[1].decode("ascii"))
        except ScramError as error:
            self._refusal = error.message
            return _REFUSED
        if matched[1] not in (None, b"", self.user.encode()):
            raise ScramError("another identity is asked for than the token's", "users are themselves alone")
        self.authenticated = True
        return b""
