"""Addresses as people write them, host:port, and which of them a node can be dialled at.

Decides by form alone; whether there is such a host is never asked. No state.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

#: of a host's name, and of a part between two of its dots (RFC 1035)
_NAME_CHARS_MAX = 253
_LABEL_CHARS_MAX = 63
_BROADCAST = ipaddress.ip_address("255.255.255.255")


class Address(NamedTuple):
    """A host and a TCP port; an IPv6 host has no brackets here and with them in text."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(address: Address) -> bool:
    """Tell whether an address is this machine's own, by its form."""
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return address.host == "localhost"


def parse_address(value: str) -> Address:
    """Read host:port.

    Raises:
        ValueError: with the problem in words.
    """
    host, colon, port = value.rpartition(":")
    if not colon or not host:
        raise ValueError("has no host or no port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("has an IPv6 host without brackets")
    if not _is_host(host):
        raise ValueError("has no proper host (a name or an IP address)")
    if not re.fullmatch(r"\d{1,5}", port) or not 1 <= int(port) <= 65535:
        raise ValueError("has no port from 1 to 65535")
    return Address(host, int(port))


def parse_member_address(value: str) -> Address:
    """Read host:port of a node, as the other nodes dial it.

    Raises:
        ValueError: with the problem in words.
    """
    address = parse_address(value)
    try:
        number = ipaddress.ip_address(address.host)
    except ValueError:
        return address
    if number.is_unspecified or number.is_multicast or number == _BROADCAST:
        raise ValueError("names no machine that the other nodes could dial")
    return address


def _is_host(text: str) -> bool:
    """Tell whether a text is a name or an IP address in form; whether there is such a host, is not asked."""
    if ":" in text or re.fullmatch(r"[\d.]+", text):
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return False
        return True
    if not re.fullmatch(r"[\w.-]+", text):
        return False
    labels = text.removesuffix(".").split(".")
    return len(text) <= _NAME_CHARS_MAX and all(0 < len(label) <= _LABEL_CHARS_MAX for label in labels)
