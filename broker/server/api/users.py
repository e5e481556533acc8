"""DescribeUserScramCredentials and AlterUserScramCredentials: users and their passwords.

Each broker carries them out. A client sends the salted password, from which the keys follow. Of a user whose
changes are not all acceptable none is made.
Source: KIP-554; ZkAdminManager, KafkaApis (Kafka 3.9).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from typing import Final, NamedTuple, Protocol, cast

from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from controller.wire.error_codes import code_of_error
from quorum.errors import QuorateError
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.user_records import ITERATIONS_MAX, ITERATIONS_MIN, Mechanism, ScramCredential

_DONE: Final[Values] = {"error_code": ErrorCode.NONE, "error_message": None}
_REFUSED: Final[Values] = {
    "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "error_message": "Cluster authorization failed.",
}


class _Deletion(Protocol):
    name: str
    mechanism: int


class _Upsertion(_Deletion, Protocol):
    iterations: int
    salt: bytes
    salted_password: bytes


class _Change(NamedTuple):
    mechanism: Mechanism
    #: None: it is deleted
    credential: ScramCredential | None


class _InvalidError(Exception):
    """A change that is refused: code and words."""

    def __init__(self, code: ErrorCode, words: str) -> None:
        super().__init__(words)
        self.code = code


def describe_user_scram_credentials(services: BrokerServices, call: Call) -> Answer:
    """Answer with the mechanisms of users, without anything that a password could be tried with."""
    asked = [each.name for each in call.body.users or ()]
    if not call.access.permits(Operation.DESCRIBE, ResourceType.CLUSTER):
        rows = [_user_row(name, _REFUSED) for name in asked]
        return {**_DONE, "results": rows}
    users = services.users.users
    rows = []
    for name, count in Counter(asked or sorted(users)).items():
        words, code = "", ErrorCode.NONE
        if count > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            words = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif name not in users:
            code = ErrorCode.RESOURCE_NOT_FOUND
            words = f"Attempt to describe a user credential that does not exist: {name}"
        rows.append(_user_row(name, {"error_code": code, "error_message": words or None}))
        if not code:
            rows[-1]["credential_infos"] = [
                {"mechanism": mechanism, "iterations": credential.iterations}
                for mechanism, credential in users[name].items()
            ]
    return {**_DONE, "results": rows}


async def alter_user_scram_credentials(services: BrokerServices, call: Call) -> Answer:
    """Set and delete credentials, those of one user together."""
    deletions, upsertions = call.body.deletions, call.body.upsertions
    by_user: dict[str, list[_Deletion]] = defaultdict(list)
    for each in (*deletions, *upsertions):
        by_user[each.name].append(each)
    may = call.access.permits(Operation.ALTER, ResourceType.CLUSTER)
    results = []
    for user, changes in by_user.items():
        outcome = await _altered(services, user, changes) if may else _REFUSED
        results.append({"user": user, **outcome})
    return {"results": results}


async def _altered(services: BrokerServices, user: str, asked: list[_Deletion]) -> Values:
    try:
        changes = dict(_change(services, each) for each in asked)
        if len(changes) != len(asked):
            words = "A user credential cannot be altered twice in the same request"
            raise _InvalidError(ErrorCode.DUPLICATE_RESOURCE, words)
        await services.users.alter(user, changes)
    except _InvalidError as error:
        return {"error_code": error.code, "error_message": str(error)}
    except QuorateError as error:
        return {"error_code": code_of_error(error), "error_message": error.message}
    return _DONE


def _change(services: BrokerServices, asked: _Deletion) -> _Change:
    # "." and ".." would be another znode.
    if not asked.name or asked.name in (".", ".."):
        words = "Username must not be empty" if not asked.name else f"{asked.name} can be no user"
        raise _InvalidError(ErrorCode.UNACCEPTABLE_CREDENTIAL, words)
    try:
        mechanism = Mechanism(asked.mechanism)
    except ValueError:
        raise _InvalidError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if not hasattr(asked, "iterations"):
        if mechanism not in services.users.credentials_of(asked.name):
            words = "Attempt to delete a user credential that does not exist"
            raise _InvalidError(ErrorCode.RESOURCE_NOT_FOUND, words)
        return _Change(mechanism, None)
    asked, code = cast("_Upsertion", asked), ErrorCode.UNACCEPTABLE_CREDENTIAL
    iterations = asked.iterations
    if iterations < ITERATIONS_MIN:
        raise _InvalidError(code, f"Too few iterations: {iterations}, at least {ITERATIONS_MIN} are needed")
    if iterations > ITERATIONS_MAX:
        raise _InvalidError(code, f"Too many iterations: {iterations}, at most {ITERATIONS_MAX} are taken")
    if not asked.salt:
        raise _InvalidError(code, "The salt is empty")
    size = hashlib.new(mechanism.digest).digest_size
    if len(asked.salted_password) != size:
        raise _InvalidError(code, f"The salted password has {len(asked.salted_password)} bytes, not {size}")
    credential = ScramCredential.of(mechanism, asked.salted_password, asked.salt, iterations)
    return _Change(mechanism, credential)


def _user_row(user: str, outcome: Values) -> dict[str, object]:
    return {"user": user, "credential_infos": (), **outcome}
