"""The table of codes against kio's, which is generated from Kafka's own."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioCode

from controller.wire.codes import RETRIABLE, ErrorCode, code_name


def test_every_code_has_kafkas_name_and_number() -> None:
    for code in ErrorCode:
        assert KioCode[code.name.lower()] == int(code)


def test_retriable_codes_are_kafkas() -> None:
    assert {code for code in ErrorCode if KioCode(int(code)).retriable} == RETRIABLE


def test_an_unknown_code_has_a_name_for_people() -> None:
    assert code_name(ErrorCode.STALE_BROKER_EPOCH) == "STALE_BROKER_EPOCH"
    assert code_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert code_name(9999) == "error code 9999"
