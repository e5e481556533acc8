"""The subject of a peer's certificate as Java writes it: "CN=alice,O=x".

ZooKeeper's scheme x509 and Kafka's principals name a peer so. Attributes that RFC 2253 has no keyword for are
written by OpenSSL's names; Java writes their numbers and bytes. An e-mail address is written as Java does.
Source: RFC 2253; Java's X500Principal.getName().
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from typing import Final

_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = re.compile(r'[,+"\\<>;]')

#: One name of a subject: (attribute, value) of each part.
_Rdn = Sequence[tuple[str, str]]


def peer_subject(connection: ssl.SSLObject | None) -> str | None:
    """Return the subject of a connection's peer; None: it is plain, or its peer showed no certificate."""
    found = None if connection is None else connection.getpeercert()
    return written(found.get("subject", ())) if found else None  # type: ignore[arg-type]


def written(subject: Sequence[_Rdn]) -> str:
    """Write a subject, whose names `ssl` gives in the order of the certificate: the last one comes first."""
    return ",".join("+".join(_part(*each) for each in names) for names in reversed(subject))


def _part(attribute: str, value: str) -> str:
    if attribute == "emailAddress":
        text = value.encode("ascii", "replace")
        return f"1.2.840.113549.1.9.1=#16{len(text):02x}{text.hex()}"
    escaped = _SPECIAL.sub(r"\\\g<0>", value)
    if escaped[:1] in (" ", "#"):
        escaped = f"\\{escaped}"
    if len(value) > 1 and value.endswith(" "):
        escaped = f"{escaped[:-1]}\\ "
    return f"{_KEYWORDS.get(attribute, attribute)}={escaped}"
