"""What the listeners of a broker write to the audit log: administrative requests, denials, failed proofs.

Decides which requests are administrative, and what their items are called: "Topic:LITERAL:a". Produce and
Fetch that are allowed leave no line. An item is noted by its name and outcome; settings, credentials and
records never are. Soft state only.
Source: KafkaApis and AclAuthorizer's audit log (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Final, NamedTuple, Protocol, cast

from broker.server.requests import Answer, Request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, PatternType, Permission, ResourceType
from quorum.platform.audit import ALLOWED, DENIED, FAILED, AuditLog

#: who asks on the listener of brokers
_BROKER: Final = "broker"
#: of a user whom nobody has proved to be
_CLAIMED_CHARS_MAX: Final = 255
#: what the access lists refused has its own line
_REFUSALS: Final = frozenset(
    (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
)
#: ConfigResource.Type
_CONFIG_RESOURCES: Final = {2: "Topic", 4: "Broker", 8: "BrokerLogger"}


class _Audited(NamedTuple):
    """How the items of a request are found in its answer.

    Attributes:
        rows: array of the answer. name: field of a row. kind: of resource; "": the row says it itself.
        asked: array of the request whose items the rows answer in their order, if they have no name.
    """

    rows: str
    name: str
    kind: str
    asked: str = ""


_AUDITED: Final[Mapping[int, _Audited]] = {
    ApiKey.CREATE_TOPICS: _Audited("topics", "name", "Topic"),
    ApiKey.DELETE_TOPICS: _Audited("responses", "name", "Topic"),
    ApiKey.CREATE_PARTITIONS: _Audited("results", "name", "Topic"),
    ApiKey.DELETE_RECORDS: _Audited("topics", "name", "Topic"),
    ApiKey.DELETE_GROUPS: _Audited("results", "group_id", "Group"),
    ApiKey.OFFSET_DELETE: _Audited("topics", "name", "Topic"),
    ApiKey.ALTER_CONFIGS: _Audited("responses", "resource_name", ""),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _Audited("responses", "resource_name", ""),
    ApiKey.CREATE_ACLS: _Audited("results", "", "", "creations"),
    ApiKey.DELETE_ACLS: _Audited("filter_results", "", "", "filters"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _Audited("results", "user", "User"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _Audited("responses", "name", "Topic"),
    ApiKey.ELECT_LEADERS: _Audited("replica_election_results", "topic", "Topic"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _Audited("results", "topic_name", "Topic"),
    ApiKey.ALTER_CLIENT_QUOTAS: _Audited("entries", "entity", "ClientQuota"),
}


class Denials:
    """What the access lists refuse one request; each is noted once."""

    def __init__(self, log: AuditLog, request: Request) -> None:
        """Note nothing yet."""
        self._log = log
        self._request = request
        self._noted: set[tuple[Operation, ResourceType, str]] = set()

    def __call__(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Note that a principal may not do something."""
        denial = operation, resource_type, name
        if denial in self._noted:
            return
        self._noted.add(denial)
        request, word = self._request, _word(operation.name)
        resource = f"{_word(resource_type.name)}:LITERAL:{name}"
        _write(self._log, request, request.principal, word, resource, DENIED)


class RequestAudit:
    """The audit log, as the listeners of a broker write to it."""

    def __init__(self, log: AuditLog) -> None:
        """Write to the log of the process."""
        self._log = log

    def denials(self, request: Request) -> Denials:
        """Return what notes the denials of a request."""
        return Denials(self._log, request)

    def answered(self, request: Request, body: object, answer: Answer, *, from_broker: bool) -> Answer:
        """Note the items of an administrative request; returns its answer, whose rows may be others.

        Args:
            request: it. body: as it was decoded. answer: what its sender gets.
            from_broker: whether it came on the listener of brokers.
        """
        audited = _AUDITED.get(request.api_key)
        if audited is None or not isinstance(answer, Mapping):
            return answer
        rows = answer.get(audited.rows, ())
        if isinstance(rows, GeneratorType | Iterator):
            rows = list(rows)
            answer = {**answer, audited.rows: rows}
        word = _word(ApiKey(request.api_key).name)
        principal = _BROKER if from_broker else request.principal
        code = answer.get("error_code", 0)
        noted = False
        for resource, codes in _items(audited, body, rows):
            noted = True
            found = {code, *codes}
            if not found & _REFUSALS:
                outcome = FAILED if any(found) else ALLOWED
                _write(self._log, request, principal, word, resource, outcome)
        if not noted and code and code not in _REFUSALS:
            _write(self._log, request, principal, word, "Cluster:LITERAL:kafka-cluster", FAILED)
        return answer

    def unproved(self, peer: str, claimed: str, problem: str) -> None:
        """Note a proof that failed.

        Args:
            peer: host:port. claimed: whose proof it should have been. problem: what was proved wrong.
        """
        self._log.write(claimed[:_CLAIMED_CHARS_MAX], peer, "Authenticate", problem, DENIED)


def note_created(log: AuditLog, request: Request, names: Iterable[str], failed: Container[str]) -> None:
    """Note topics that were created because a client asked what they are; failed: those that were not."""
    for name in names:
        outcome = FAILED if name in failed else ALLOWED
        _write(log, request, request.principal, "CreateTopics", f"Topic:LITERAL:{name}", outcome)


def _write(log: AuditLog, request: Request, principal: str, word: str, resource: str, outcome: str) -> None:
    log.write(principal, request.peer, word, resource, outcome, request=request.correlation_id)


def _word(name: str) -> str:
    """Return a name as Kafka writes it: DESCRIBE_CONFIGS is DescribeConfigs."""
    return "".join(part.capitalize() for part in name.split("_"))


def _items(audited: _Audited, body: object, rows: Iterable[object]) -> Iterator[tuple[str, set[int]]]:
    """Yield (resource, error codes) of each item."""
    asked: Sequence[object] = getattr(body, audited.asked) if audited.asked else ()
    for number, row in enumerate(rows):
        fields = _fields(row)
        codes = set(_codes(fields))
        if number < len(asked):
            yield _access_list(asked[number]), codes
        else:
            yield _named(audited, fields), codes


class _Record(Protocol):
    def _asdict(self) -> dict[str, object]: ...


def _fields(row: object) -> Mapping[str, object]:
    if isinstance(row, Mapping):
        return row
    return cast("_Record", row)._asdict()


def _named(audited: _Audited, fields: Mapping[str, object]) -> str:
    name = fields.get(audited.name)
    if name is None:
        # A topic that is not known by its id.
        name = fields.get("topic_id")
    if audited.kind == "ClientQuota":
        parts = map(_fields, name if isinstance(name, list | tuple) else ())
        told = ",".join(f"{each['entity_type']}={each['entity_name'] or '<default>'}" for each in parts)
        return f"{audited.kind}:{told}"
    number = fields.get("resource_type")
    kind = audited.kind or _CONFIG_RESOURCES.get(number if isinstance(number, int) else 0, "Unknown")
    return f"{kind}:LITERAL:{name}"


def _access_list(asked: object) -> str:
    """Return an entry that is made or removed: "Topic:LITERAL:a (Allow User:dave Read from *)"."""
    kind = getattr(asked, "resource_type", None) or getattr(asked, "resource_type_filter", 0)
    pattern = getattr(asked, "resource_pattern_type", None) or getattr(asked, "pattern_type_filter", 3)
    name = getattr(asked, "resource_name", None) or getattr(asked, "resource_name_filter", None)
    principal = getattr(asked, "principal", None) or getattr(asked, "principal_filter", None)
    host = getattr(asked, "host", None) or getattr(asked, "host_filter", None)
    kind_word = _word(ResourceType(kind).name) if kind in set(ResourceType) else "All"
    pattern_word = PatternType(pattern).name if pattern in set(PatternType) else "ANY"
    resource = f"{kind_word}:{pattern_word}:{'*' if name is None else name}"
    operation, permission = getattr(asked, "operation", 0), getattr(asked, "permission_type", 0)
    operation_word = _word(Operation(operation).name) if operation in set(Operation) else "any"
    permission_word = _word(Permission(permission).name) if permission in set(Permission) else "any"
    return f"{resource} ({permission_word} {principal or 'any'} {operation_word} from {host or 'any'})"


def _codes(fields: Mapping[str, object]) -> Iterator[int]:
    """Yield the error codes of a row, and of the rows in it."""
    if isinstance(code := fields.get("error_code"), int):
        yield code
    for value in fields.values():
        if isinstance(value, list | tuple):
            for row in value:
                if isinstance(row, Mapping):
                    yield from _codes(row)
