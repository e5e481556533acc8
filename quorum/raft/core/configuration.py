"""The members of the cluster, as the log names them.

Decides the shape of a configuration, its JSON payload and its majorities. Does not know which configuration
of the log counts (`history.py`) nor how peers are reached. A configuration is hard state: it exists only as
the payload of an entry (FOUND, MEMBERS) or as part of a snapshot. Member ids are positive integers,
incarnations 32 hex digits drawn when a data directory is formatted. Every voter has one, and no learner: it
is recorded by the entry that makes it a voter.

Source: dissertation §4 (single-server changes); identity of members by incarnation is our own.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

from quorum.raft.core.errors import ConfigurationError

_HEX: Final = frozenset("0123456789abcdef")
_KEYS: Final = ("cluster_id", "learners", "retired", "session_key", "voters")
_MEMBER_KEYS: Final = ("address", "incarnation")

#: A quorum is small; the bound keeps a damaged payload from becoming a large table.
MEMBERS_MAX: Final = 64


class Member(NamedTuple):
    """One node of the cluster."""

    address: str  #: host:port of its peer listener
    incarnation: str  #: of a voter: 32 hex digits; of a learner: empty


class Configuration(NamedTuple):
    """The members from one log index on."""

    cluster_id: str  #: 32 hex digits; empty only before entry 1 is built
    voters: Mapping[int, Member]  #: {node id: member}, ascending ids
    learners: Mapping[int, Member]  #: replicated to, never counted
    retired: tuple[str, ...]  #: incarnations that never count again

    @property
    def quorum_size(self) -> int:
        """Return how many voters make a majority."""
        return quorum_size(len(self.voters))

    def member(self, node_id: int) -> Member | None:
        """Return the voter or learner with this id, or None."""
        return self.voters.get(node_id) or self.learners.get(node_id)

    def has(self, node_id: int, incarnation: str) -> bool:
        """Return whether this disk is the one that is named for a voter, or may be a learner's."""
        member = self.member(node_id)
        if member is None or incarnation in self.retired:
            return False
        return member.incarnation in ("", incarnation)

    def peer_ids(self, node_id: int) -> tuple[int, ...]:
        """Return all members' ids but ``node_id``, ascending."""
        return tuple(sorted(member for member in (*self.voters, *self.learners) if member != node_id))

    def names(self, incarnation: str) -> bool:
        """Return whether this incarnation is a voter's, or was one's and never counts again."""
        voters = self.voters.values()
        return incarnation in self.retired or any(member.incarnation == incarnation for member in voters)

    def with_learner(self, node_id: int, address: str) -> "Configuration":
        """Return a copy with one more learner."""
        return self._replace(learners=_ascending({**self.learners, node_id: Member(address, "")}))

    def with_voter(self, node_id: int, incarnation: str) -> "Configuration":
        """Return a copy in which this learner is a voter by this incarnation."""
        learners = dict(self.learners)
        member = learners.pop(node_id)._replace(incarnation=incarnation)
        return self._replace(voters=_ascending({**self.voters, node_id: member}), learners=learners)

    def without(self, node_id: int) -> "Configuration":
        """Return a copy without this member."""
        return self._replace(
            voters={key: member for key, member in self.voters.items() if key != node_id},
            learners={key: member for key, member in self.learners.items() if key != node_id},
        )

    def replaced(self, node_id: int, named: str = "") -> "Configuration":
        """Return a copy in which this member is a learner again and its incarnation never counts any more.

        Of a learner that is the one that is named, if any.
        """
        member = self.voters.get(node_id) or self.learners[node_id]
        lost = member.incarnation or named
        retired = (*self.retired, lost) if lost else self.retired
        return self.without(node_id).with_learner(node_id, member.address)._replace(retired=retired)

    def to_payload(self) -> bytes:
        """Return the canonical JSON: sorted keys, compact, utf-8."""
        return json.dumps(self.to_plain(), sort_keys=True, separators=(",", ":")).encode()

    def to_plain(self) -> dict[str, object]:
        """Return the JSON object; the founding payload is this plus a session key."""
        return {
            "cluster_id": self.cluster_id,
            "voters": _plain_members(self.voters),
            "learners": _plain_members(self.learners),
            "retired": list(self.retired),
        }


def _ascending(members: Mapping[int, Member]) -> dict[int, Member]:
    return dict(sorted(members.items()))


def quorum_size(voters: int) -> int:
    """Return the size of a majority of this many voters."""
    return voters // 2 + 1


def majority_value(values: Iterable[float], voters: int) -> float | None:
    """Return the largest value that a majority of the voters reaches.

    Args:
        values: one per voter that counts; voters without one reach nothing.
        voters: size of the whole voter set.

    Returns:
        The value, or None if fewer than a majority count.
    """
    ordered = sorted(values, reverse=True)
    quorum = quorum_size(voters)
    return ordered[quorum - 1] if len(ordered) >= quorum else None


def founding_configuration(founders: Mapping[int, str], incarnations: Mapping[int, str]) -> Configuration:
    """Return the configuration of entry 1, still without a cluster id.

    Args:
        founders: {node id: address} from the node's own settings.
        incarnations: {node id: incarnation} of all of them.
    """
    voters = {node_id: Member(founders[node_id], incarnations[node_id]) for node_id in sorted(founders)}
    return Configuration("", voters, {}, ())


def parse_configuration(payload: bytes) -> Configuration:
    """Parse the payload of a FOUND or MEMBERS entry."""
    try:
        plain: object = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"a configuration payload is not JSON: {error}") from error
    return configuration_from_plain(plain)


def configuration_from_plain(plain: object) -> Configuration:
    """Build a configuration from decoded JSON (a snapshot's header holds it so)."""
    fields = _object(plain, "configuration")
    for key in fields:
        if key not in _KEYS:
            raise ConfigurationError(f"configuration has the unknown field {key!r}")
    if "session_key" in fields:
        _hex(fields["session_key"], 64, "session_key")
    voters = _parse_members(_field(fields, "voters", "configuration"), "voters")
    learners = _parse_members(_field(fields, "learners", "configuration"), "learners")
    if not voters:
        raise ConfigurationError("configuration has no voters")
    both = sorted(set(voters) & set(learners))
    if both:
        raise ConfigurationError(f"node {both[0]} is both a voter and a learner")
    retired_plain = _field(fields, "retired", "configuration")
    if not isinstance(retired_plain, list):
        raise ConfigurationError(f"retired must be a list, not {retired_plain!r}")
    retired = tuple(_hex(item, 32, "retired") for item in cast("list[object]", retired_plain))
    cluster_id = _hex(_field(fields, "cluster_id", "configuration"), 32, "cluster_id")
    return Configuration(cluster_id, voters, learners, retired)


def _plain_members(members: Mapping[int, Member]) -> dict[str, object]:
    return {
        str(node_id): {"address": member.address, "incarnation": member.incarnation}
        for node_id, member in members.items()
    }


def _parse_members(plain: object, name: str) -> dict[int, Member]:
    members: dict[int, Member] = {}
    fields = _object(plain, name)
    if len(fields) > MEMBERS_MAX:
        raise ConfigurationError(f"{name} has {len(fields)} members, more than {MEMBERS_MAX}")
    for key, value in fields.items():
        if not (key.isascii() and key.isdigit() and key[0] != "0" and len(key) <= 9):
            raise ConfigurationError(
                f"{name} has the node id {key!r}; ids are whole numbers from 1 to 999999999"
            )
        where = f"{name}.{key}"
        member = _object(value, where)
        if sorted(member) != sorted(_MEMBER_KEYS):
            raise ConfigurationError(
                f"{where} must have exactly the fields {', '.join(_MEMBER_KEYS)}, not {sorted(member)}"
            )
        address = member["address"]
        if not isinstance(address, str) or not address:
            raise ConfigurationError(f"{where}.address must be host:port, not {address!r}")
        incarnation = member["incarnation"]
        if name == "voters":
            incarnation = _hex(incarnation, 32, f"{where}.incarnation")
        elif incarnation != "":
            raise ConfigurationError(f"{where}.incarnation must be empty, not {incarnation!r}")
        members[int(key)] = Member(address, incarnation)
    return _ascending(members)


def _object(plain: object, where: str) -> dict[str, object]:
    if not isinstance(plain, dict):
        raise ConfigurationError(f"{where} must be an object, not {plain!r}")
    return cast("dict[str, object]", plain)


def _field(fields: dict[str, object], name: str, where: str) -> object:
    if name not in fields:
        raise ConfigurationError(f"{where} lacks the field {name}")
    return fields[name]


def _hex(value: object, digits: int, where: str) -> str:
    if not isinstance(value, str) or len(value) != digits or not _HEX.issuperset(value):
        raise ConfigurationError(f"{where} must be {digits} lower-case hex digits, not {value!r}")
    return value
