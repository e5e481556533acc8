"""An issuer of tokens, with a file of its keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as make_ec
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as make_rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "brokers"


class Issuer:
    """Keys by their ids, and tokens that they sign."""

    def __init__(self, file: Path) -> None:
        """Make a key of each kind, and write the set."""
        self.file = file
        self.url = file.as_uri()
        self._private: dict[str, Any] = {}
        self._public: dict[str, dict[str, Any]] = {}
        self.add_rsa("rsa")
        self.add_ec("ec")

    def add_rsa(self, key_id: str, bits: int = 2048) -> None:
        """Make an RSA key, and write the set."""
        key = self._private[key_id] = make_rsa(65537, bits)
        self._publish(key_id, RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))

    def add_ec(self, key_id: str) -> None:
        """Make a key on P-256, and write the set."""
        key = self._private[key_id] = make_ec(SECP256R1())
        self._publish(key_id, ECAlgorithm.to_jwk(key.public_key(), as_dict=True))

    def _publish(self, key_id: str, public: dict[str, Any]) -> None:
        self._public[key_id] = {**public, "kid": key_id, "use": "sig"}
        self.file.write_text(json.dumps({"keys": list(self._public.values())}))

    def token(
        self, name: str = "alice", *, kid: str | None = "rsa", by: str = "", alg: str = "", **claims: object
    ) -> str:
        """Return a token; a claim None is left out.

        Args:
            name: its sub. kid: what its header says. by: the key that signs it, kid's by default.
            alg: what its header says, by default what the key does.
            claims: over those of a good token.
        """
        signer = by or kid or "rsa"
        given = {"sub": name, "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 300, **claims}
        kept = {key: value for key, value in given.items() if value is not None}
        algorithm = alg or ("ES256" if signer.startswith("ec") else "RS256")
        key = {"none": None, "HS256": "k" * 32}.get(algorithm, self._private[signer])
        return jwt.encode(kept, key, algorithm, headers={} if kid is None else {"kid": kid})
