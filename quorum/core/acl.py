"""Access control: which ACLs are valid, what they permit, and the table that stores each of them once.

An ACL is a tuple of (permissions, scheme, id). Znodes refer to it by a number; number 0 is world:anyone with
every permission, is never counted and costs nothing on the hot path. The others are counted and forgotten
with their last znode. Numbers rise and are part of the hard state, but digests use the contents. A number
means the ACL together with the lifetime of its znodes: nearly all are UNLIMITED, and so the packed
record of a znode needs no further field for the few containers and TTL nodes.

Schemes: world, auth (replaced by the caller's own ids at creation), digest, ip, sasl, x509, super (a caller's
id only). Pure; the caller's identities come in with the run. Source: ZooKeeper 3.9
PrepRequestProcessor.fixupACL, ZooKeeperServer.checkACL, IPAuthenticationProvider, KerberosName; RFC 2253.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, TypeAlias

from quorum.core.codes import BAD_ARGUMENTS, INT32_MAX, INVALID_ACL, PERM_ALL
from quorum.core.records import ACL_MASK, NULL_DATA

#: (permissions, scheme, id)
AclEntry: TypeAlias = tuple[int, str, str]
Acl: TypeAlias = tuple[AclEntry, ...]

OPEN_ACL: Final[Acl] = ((PERM_ALL, "world", "anyone"),)
OPEN_ACL_NUMBER: Final = 0
#: what an ACL may have, also once "auth" was replaced
ACL_ENTRIES_MAX: Final = 1000
#: entries of an ACL that is quickly read again, if it names no network: kept as read it takes more memory
SHORT_ENTRIES_MAX: Final = 4
#: how many of these are kept as read; one more, and all are let go: those in use are soon there again
SHORT_GRANTS_MAX: Final = 1024
#: lifetime of a znode that is there until it is deleted; above 0 it is a TTL in milliseconds
UNLIMITED: Final = 0
#: lifetime of a container: until its last child is gone
CONTAINER: Final = -1
_OPEN_AS_SENT: Final = [[PERM_ALL, "world", "anyone"]]
#: schemes whose ids the entry "auth" means
_AUTHENTICATED_SCHEMES: Final = ("digest", "sasl", "x509")
_IPV4: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}", re.ASCII)
_IPV6: Final = re.compile(r"[0-9A-Fa-f:]{2,39}", re.ASCII)
_PREFIX: Final = re.compile(r"[0-9]{1,3}", re.ASCII)
#: a name, or primary/instance@realm as Kerberos writes it
_SASL_NAME: Final = re.compile(r"[^@]+|[^/@]*(?:/[^/@]*)?@[^/@]*")
#: a distinguished name of RFC 2253
_SUBJECT: Final = re.compile(
    r"(?:{0})(?:[,+](?:{0}))*".format(r' *[A-Za-z0-9][A-Za-z0-9.-]* *=(?:[^,+"\\<>;]|\\.)*'), re.DOTALL
)


def parse_address(text: str) -> tuple[int, int] | None:
    """Parse an IPv4 or IPv6 address.

    Returns:
        (number, width in bits), or None where the text is no address.
    """
    if _IPV4.fullmatch(text):
        octets = [int(part) for part in text.split(".")]
        return (int.from_bytes(bytes(octets), "big"), 32) if max(octets) <= 255 else None
    if _IPV6.fullmatch(text):
        try:
            return int(ipaddress.IPv6Address(text)), 128
        except ValueError:
            return None
    return None


def parse_network(text: str) -> tuple[int, int, int] | None:
    """Parse the id of an ip entry: an address, or an address, a slash and a prefix length.

    Returns:
        (number without the bits after the prefix, width in bits, prefix length), or None where it is
        invalid.
    """
    address_text, slash, prefix_text = text.partition("/")
    address = parse_address(address_text)
    if address is None:
        return None
    number, width = address
    prefix = width
    if slash:
        if not _PREFIX.fullmatch(prefix_text) or int(prefix_text) > width:
            return None
        prefix = int(prefix_text)
    return number >> (width - prefix) << (width - prefix), width, prefix


def _is_valid_id(scheme: str, name: str) -> bool:
    if scheme == "digest":
        # as Java's String.split: empty parts at the end do not count
        return len(name.rstrip(":").split(":")) == 2
    if scheme == "sasl":
        return _SASL_NAME.fullmatch(name) is not None
    if scheme == "x509":
        return _SUBJECT.fullmatch(name) is not None
    return scheme == "ip" and parse_network(name) is not None


def _identity(candidate: object) -> tuple[str, str] | None:
    if type(candidate) is list and len(candidate) == 2:
        scheme, name = candidate
        if type(scheme) is str and type(name) is str:
            return scheme, name
    return None


def identities_of(identities: object) -> Iterator[tuple[str, str]]:
    """Iterate over the (scheme, id) pairs of a run; anything else proves nothing and is left out."""
    if type(identities) is list:
        for candidate in identities:
            identity = _identity(candidate)
            if identity is not None:
                yield identity


class Grants:
    """What an ACL permits to whom, read once; to ask takes as long for a long ACL as for a short one."""

    __slots__ = ("_by_id", "_by_network", "_prefixes", "_to_all")

    def __init__(self, acl: Acl) -> None:
        """Read a stored ACL."""
        self._to_all = 0
        #: {(scheme, id): permissions}
        self._by_id: dict[tuple[str, str], int] = {}
        #: {(width in bits, prefix length, the prefix): permissions}
        self._by_network: dict[tuple[int, int, int], int] = {}
        for perms, scheme, name in acl:
            if scheme == "world" and name == "anyone":
                self._to_all |= perms
            elif scheme != "ip":
                self._by_id[scheme, name] = self._by_id.get((scheme, name), 0) | perms
            elif (network := parse_network(name)) is not None:
                number, width, prefix = network
                key = (width, prefix, number >> (width - prefix))
                self._by_network[key] = self._by_network.get(key, 0) | perms
        #: the kinds of networks that there are, 162 at most
        self._prefixes = sorted({(width, prefix) for width, prefix, _ in self._by_network})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grants):
            return NotImplemented
        own = self._to_all, self._by_id, self._by_network
        return own == (other._to_all, other._by_id, other._by_network)

    __hash__ = None  # type: ignore[assignment]  # it is compared, never looked up

    @property
    def names_networks(self) -> bool:
        """Whether it permits something to addresses; to read those takes ten times as long as other ids."""
        return bool(self._by_network)

    def permit(self, permission: int, identities: object) -> bool:
        """Tell whether a caller may do something.

        Args:
            permission: one or several PERM_ bits; any of them suffices.
            identities: the caller's [[scheme, id], …] or None.
        """
        if self._to_all & permission:
            return True
        for scheme, name in identities_of(identities):
            if scheme == "super" or self._by_id.get((scheme, name), 0) & permission:
                return True
            if scheme == "ip" and self._prefixes and self._permit_address(permission, name):
                return True
        return False

    def _permit_address(self, permission: int, name: str) -> bool:
        address = parse_address(name)
        if address is None:
            return False
        number, own_width = address
        return any(
            self._by_network.get((width, prefix, number >> (width - prefix)), 0) & permission
            for width, prefix in self._prefixes
            if width == own_width
        )


def _entry(candidate: object) -> AclEntry | None:
    if type(candidate) is not list or len(candidate) != 3:
        return None
    perms, scheme, name = candidate
    if type(perms) is not int or type(scheme) is not str or type(name) is not str:
        return None
    return (perms, scheme, name) if -INT32_MAX - 1 <= perms <= INT32_MAX else None


def stored_entry(candidate: object) -> AclEntry | None:
    """Return an entry as an ACL stores it, of whatever scheme; None where it is none."""
    entry = _entry(candidate)
    return entry if entry is not None and is_text(entry[1]) and is_text(entry[2]) else None


def _own(identities: object) -> list[tuple[str, str]]:
    """Return the (scheme, id) pairs that "auth" means."""
    return [
        (scheme, name)
        for scheme, name in identities_of(identities)
        if scheme in _AUTHENTICATED_SCHEMES and is_text(name)
    ]


def _resolve(entry: AclEntry, own: list[tuple[str, str]]) -> list[AclEntry]:
    """Return what an entry is stored as: itself, the caller's ids for "auth", nothing if it is invalid."""
    perms, scheme, name = entry
    if scheme == "world":
        return [entry] if name == "anyone" else []
    if scheme == "auth":
        return [(perms, kind, user) for kind, user in own]
    return [entry] if _is_valid_id(scheme, name) and is_text(name) else []


def is_text(name: str) -> bool:
    """Tell whether a string has a UTF-8 form (a lone surrogate has none and fits in no snapshot)."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def resolve_acl(requested: object, identities: object) -> Acl | int:
    """Check the ACL of a request and replace what depends on the caller.

    Args:
        requested: None (world:anyone, everything) or [[permissions, scheme, id], …].
        identities: the caller's [[scheme, id], …] or None.

    Returns:
        The ACL to store, or BAD_ARGUMENTS (not of that shape), or INVALID_ACL (an invalid entry, none at all,
        or more than ACL_ENTRIES_MAX).
    """
    if requested is None or requested == _OPEN_AS_SENT:
        return OPEN_ACL
    if type(requested) is not list:
        return BAD_ARGUMENTS
    if len(requested) > ACL_ENTRIES_MAX:
        return INVALID_ACL
    # a dict, because its order is that of insertion: duplicates are dropped as ZooKeeper drops them
    entries: dict[AclEntry, None] = {}
    for candidate in requested:
        entry = _entry(candidate)
        if entry is None:
            return BAD_ARGUMENTS
        entries[entry] = None
    own = _own(identities)
    resolved: list[AclEntry] = []
    for entry in entries:
        stored = _resolve(entry, own)
        if not stored:
            return INVALID_ACL
        resolved += stored
    return tuple(resolved) if 0 < len(resolved) <= ACL_ENTRIES_MAX else INVALID_ACL


def redact(acl: Acl) -> Acl:
    """Return an ACL without the digests of passwords, for callers that may read but not administer."""
    return tuple(
        (perms, scheme, f"{name.partition(':')[0]}:x" if scheme == "digest" and ":" in name else name)
        for perms, scheme, name in acl
    )


def _content_digest(acl: Acl, lifetime: int) -> bytes:
    parts = [text.encode() for perms, scheme, name in acl for text in (str(perms), scheme, name)]
    if lifetime:
        parts.append(b"lifetime %d" % lifetime)
    return blake2b(b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=16).digest()


class AclTable:
    """Every ACL that a znode has, once per lifetime, with the number of znodes that have it. Hard state."""

    __slots__ = (
        "_acls",
        "_counts",
        "_grants",
        "_numbers",
        "_short_grants",
        "lifetimes",
        "marks",
        "next_number",
    )

    def __init__(self) -> None:
        #: {number: ACL}
        self._acls: dict[int, Acl] = {OPEN_ACL_NUMBER: OPEN_ACL}
        #: {number: what its ACL permits} of those that were asked for and take long to read
        self._grants: dict[int, Grants] = {}
        #: the same of others; forgotten together when there are SHORT_GRANTS_MAX
        self._short_grants: dict[int, Grants] = {}
        #: {number: lifetime of its znodes} of those that are not UNLIMITED
        self.lifetimes: dict[int, int] = {}
        #: {(ACL, lifetime): number}
        self._numbers: dict[tuple[Acl, int], int] = {(OPEN_ACL, UNLIMITED): OPEN_ACL_NUMBER}
        #: {number: znodes with it}; the open ACL is not counted
        self._counts: dict[int, int] = {}
        #: the number that the next new ACL gets; rises, so that a number means one ACL while a snapshot is
        #: walked
        self.next_number = 1
        #: {ACL field of a record: what a state digest takes for it}: the end of the path, null or not, the
        #: ACL's content
        self.marks: dict[int, bytes] = {}
        self._mark(OPEN_ACL_NUMBER, OPEN_ACL, UNLIMITED)

    def _mark(self, number: int, acl: Acl, lifetime: int) -> None:
        digest = _content_digest(acl, lifetime)
        self.marks[number] = b"\0\1" + digest
        self.marks[number | NULL_DATA] = b"\0\2" + digest

    def __getitem__(self, number: int) -> Acl:
        return self._acls[number]

    def __contains__(self, number: int) -> bool:
        return number in self._acls

    def __len__(self) -> int:
        return len(self._acls)

    def grants(self, number: int) -> Grants:
        """Return what the ACL with a number permits."""
        grants = self._short_grants.get(number) or self._grants.get(number)
        if grants is None:
            acl = self._acls[number]
            grants = Grants(acl)
            if len(acl) > SHORT_ENTRIES_MAX or grants.names_networks:
                self._grants[number] = grants
                return grants
            if len(self._short_grants) >= SHORT_GRANTS_MAX:
                self._short_grants.clear()
            self._short_grants[number] = grants
        return grants

    def permits(self, number: int, permission: int, identities: object) -> bool:
        """Tell whether the ACL with a number lets a caller do something; see `Grants.permit`."""
        return self.grants(number).permit(permission, identities)

    def lifetime_of(self, number: int) -> int:
        """Return the lifetime of the znodes with a number: UNLIMITED, CONTAINER or a TTL in milliseconds."""
        return self.lifetimes.get(number, UNLIMITED)

    def acquire(self, acl: Acl, lifetime: int = UNLIMITED) -> int:
        """Return the number of an ACL and lifetime for one more znode; what is new gets a new number."""
        number = self._numbers.get((acl, lifetime))
        if number is None:
            number = self.next_number
            while number in self._acls:
                number = number % ACL_MASK + 1
            self.next_number = number % ACL_MASK + 1
            self.add(number, acl, lifetime)
        if number != OPEN_ACL_NUMBER:
            self._counts[number] += 1
        return number

    def retain(self, number: int) -> None:
        """Count one more znode for a number that the table has."""
        if number != OPEN_ACL_NUMBER:
            self._counts[number] += 1

    def release(self, number: int) -> None:
        """Count one znode less; an ACL that no znode has is forgotten."""
        if number == OPEN_ACL_NUMBER:
            return
        self._counts[number] -= 1
        if not self._counts[number]:
            self._grants.pop(number, None)
            self._short_grants.pop(number, None)
            del self._counts[number], self.marks[number], self.marks[number | NULL_DATA]
            del self._numbers[self._acls.pop(number), self.lifetimes.pop(number, UNLIMITED)]

    def add(self, number: int, acl: Acl, lifetime: int = UNLIMITED) -> None:
        """Store an ACL under a number, for no znode yet (a snapshot is loaded so)."""
        if not 0 < number <= ACL_MASK or number in self._acls or (acl, lifetime) in self._numbers:
            raise ValueError(f"ACL number {number} is out of range or repeated")
        self._acls[number] = acl
        self._numbers[acl, lifetime] = number
        if lifetime:
            self.lifetimes[number] = lifetime
        self._counts[number] = 0
        self._mark(number, acl, lifetime)

    def stored(self) -> list[tuple[int, Acl, int]]:
        """Return (number, ACL, znodes) of every ACL but the open one, in the order of their storing."""
        return [(number, self._acls[number], count) for number, count in self._counts.items()]
