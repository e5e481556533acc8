"""What brokers recognize each other by: MACs over registrations and entries, check values, digests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from controller.wire.scram import ITERATIONS, ScramKeys
from quorum.client import AccessEntry
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.trust import Trust

PLACE = "/brokers/ids/1"
SESSION = 0x1234_5678_9ABC
VALUE = json.dumps(
    {"version": 5, "host": "h", "endpoints": ["A://h:1"], "new": {"b": [1], "a": "\ud800"}}
).encode()


def test_what_a_holder_of_a_secret_wrote_is_signed_whichever_it_signed_with() -> None:
    signed = Trust(["new", "old"], "c").sign(PLACE, VALUE, SESSION)
    assert {**json.loads(signed), "hmac": None} == {**json.loads(VALUE), "hmac": None}
    assert Trust(["old", "new"], "c").is_signed(PLACE, signed, SESSION)
    assert Trust(["new"], "c").is_signed(
        PLACE, json.dumps(json.loads(signed), indent=3, sort_keys=True).encode(), SESSION
    )
    assert not Trust(["old"], "c").is_signed(PLACE, signed, SESSION)
    assert not Trust(["new"], "another").is_signed(PLACE, signed, SESSION)


def test_a_signature_is_for_one_place_one_session_and_every_field() -> None:
    trust = Trust(["secret"], "c")
    signed = json.loads(trust.sign(PLACE, VALUE, SESSION))
    assert trust.is_signed(PLACE, json.dumps(signed).encode(), SESSION)
    assert not trust.is_signed("/brokers/ids/2", json.dumps(signed).encode(), SESSION)
    assert not trust.is_signed(PLACE, json.dumps(signed).encode(), SESSION + 1)
    for name in signed.keys() - {"hmac"}:
        lacking = {key: each for key, each in signed.items() if key != name}
        assert not trust.is_signed(PLACE, json.dumps(lacking).encode(), SESSION)
        assert not trust.is_signed(PLACE, json.dumps({**signed, name: 7}).encode(), SESSION)
    assert not trust.is_signed(PLACE, json.dumps({**signed, "more": 1}).encode(), SESSION)


UNSIGNED = (
    *(None, b"", b"{", b"[]", b"7", b'"hmac"', b"null", b"\xff", b"{}", b'{"hmac":null}', b'{"hmac":7}'),
    *(b'{"hmac":"\xc3\xa9"}', b"[" * 100_000, b'{"hmac":"","n":' + b"9" * 5_000 + b"}", VALUE),
)


@pytest.mark.parametrize("data", UNSIGNED)
def test_what_is_not_signed_is_a_strangers(data: bytes | None) -> None:
    trust = Trust(["secret"], "c")
    assert not trust.is_signed(PLACE, data)
    with pytest.raises(MetadataDecodeError, match=r"/brokers/ids/1: field 'hmac' holds no proof"):
        trust.check_signed(PLACE, data)


def test_no_key_of_the_exchange_follows_from_what_is_public() -> None:
    trust = Trust(["secret"], "c")
    keys = ScramKeys.derive("secret", b"c", ITERATIONS)
    check = base64.b64decode(trust.check_values[0])
    private = [keys.client_key, keys.verifier.stored_key, keys.verifier.server_key]
    assert check not in private
    assert hashlib.sha256(check).digest() not in private
    # With StoredKey, a proof that was seen is enough to compute the client key.
    message = b"n=quorate,r=a,r=ab,s=c,i=4096,c=biws,r=ab"
    proof = keys.proof(message)
    mask = hmac.digest(check, message, "sha256")
    assert bytes(a ^ b for a, b in zip(proof, mask, strict=True)) != keys.client_key


def test_the_access_list_lets_everybody_read_and_holders_write() -> None:
    trust = Trust(["one", "two"], "c")
    first, holder = trust.access()
    assert first == (1, "world", "anyone")
    assert holder == (31, "digest", trust.holders[0])
    for identity, credentials in zip(trust.holders, trust.credentials, strict=True):
        digest = base64.b64encode(hashlib.sha1(credentials).digest()).decode()
        assert identity == f"quorate:{digest}"


def test_an_access_list_follows_the_first_secret_and_keeps_what_is_of_others() -> None:
    everybody = AccessEntry(1, "world", "anyone")
    other = AccessEntry(31, "digest", "quorate:somebody")
    before = [everybody, *Trust(["old"], "c").own_access(), other]
    trust = Trust(["new", "old"], "c")
    after = [everybody, *trust.own_access(), other]
    assert trust.as_of_first(before) == after
    assert trust.as_of_first([*before, *trust.own_access()]) == [everybody, *trust.own_access(), other]
    assert Trust(["new"], "c").as_of_first(before) == before


def test_secrets_that_are_replaced_count_at_once() -> None:
    secrets = ["old"]
    trust = Trust(secrets, "c")
    signed = trust.sign(PLACE, VALUE, SESSION)
    assert trust.signer(PLACE, signed, SESSION) == 0
    secrets[:] = ["new", "old"]
    assert trust.signer(PLACE, signed, SESSION) == 1
    assert trust.signer(PLACE, trust.sign(PLACE, signed, SESSION), SESSION) == 0
    secrets[:] = ["new"]
    assert trust.signer(PLACE, signed, SESSION) is None
    assert trust.check_values == Trust(["new"], "c").check_values


def test_an_empty_secret_signs_nothing() -> None:
    for secrets in ([], [""], ["a", ""]):
        with pytest.raises(ValueError, match="empty"):
            Trust(secrets, "c")
