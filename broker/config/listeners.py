"""The ports of a broker and what is advertised of them.

Kafka's clients have a plain listener and others, which are written as Kafka does: "SSL://127.0.0.1:9093"; a
listener is called as its protocol. Decides which protocols there are. No state.
Source: Kafka's broker configuration, "listeners".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from broker.config.sasl import SASL_LISTENER, SASL_TLS_LISTENER
from controller.core.brokers import BROKER_LISTENER, CLIENT_LISTENER, TLS_LISTENER
from quorum.config.address import Address, is_loopback, parse_address, parse_member_address
from quorum.config.settings import ADDRESS, OPTIONAL_ADDRESS, ValueKind, setting, text
from quorum.config.tls import DIALLER, MUTUAL, TlsName
from quorum.errors import ConfigProblem

#: of the listeners that may be given
PROTOCOLS: Final = (TLS_LISTENER, SASL_TLS_LISTENER, SASL_LISTENER)


class ListenerAddress(NamedTuple):
    """One listener."""

    protocol: str
    address: Address

    def __str__(self) -> str:
        return f"{self.protocol}://{self.address}"


def _read(value: object, _folder: Path) -> tuple[ListenerAddress, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("is not a list of texts")
    found: dict[str, Address] = {}
    for each in value:
        protocol, separator, address = each.partition("://")
        if not separator:
            raise ValueError(f"has {each!r}, which is not PROTOCOL://host:port")
        if protocol == "PLAINTEXT":
            raise ValueError(f"has {each!r}: the plain listener is listen.client")
        if protocol not in PROTOCOLS:
            raise ValueError(f"has {each!r}, whose protocol is not known")
        if protocol in found:
            raise ValueError(f"has {protocol} more than once")
        try:
            found[protocol] = parse_address(address)
        except ValueError as error:
            raise ValueError(f"has {each!r}, which {error}") from error
    return tuple(ListenerAddress(*each) for each in found.items())


LISTENERS: Final = ValueKind(
    f'a list of PROTOCOL://host:port, as ["SSL://127.0.0.1:9093"], out of {", ".join(PROTOCOLS)}',
    _read,
    listed=True,
)


@dataclass(frozen=True, slots=True)
class BrokerListenSection:
    """The addresses that this broker listens on."""

    #: Kafka clients, plain; None: only by `listeners`
    client: Address | None = setting(OPTIONAL_ADDRESS, Address("127.0.0.1", 9092))
    #: Kafka clients by other protocols, one of each at most; their TLS is [tls.ssl] and [tls.sasl_ssl]
    listeners: tuple[ListenerAddress, ...] = setting(LISTENERS, ())
    #: control requests of the controller, and the fetches of followers
    broker: Address = setting(ADDRESS, Address("127.0.0.1", 9192))
    #: HTTP
    admin: Address = setting(ADDRESS, Address("127.0.0.1", 9292))


@dataclass(frozen=True, slots=True)
class AdvertisedSection:
    """What others dial; an empty text: as listened."""

    client: str = setting(text(r"|\S+:\d{1,5}", 'host:port, or ""'), "")
    listeners: tuple[ListenerAddress, ...] = setting(LISTENERS, ())
    broker: str = setting(text(r"|\S+:\d{1,5}", 'host:port, or ""'), "")


#: {listener: its security protocol}
LISTENER_PROTOCOLS: Final = {CLIENT_LISTENER: "PLAINTEXT", BROKER_LISTENER: "SASL_PLAINTEXT"}
#: {NAME of [tls.NAME]: what it is}
BROKER_TLS: Final = {
    "ssl": TlsName(),
    "sasl_ssl": TlsName(),
    "broker": MUTUAL,
    "admin": TlsName("want"),
    "quorum": DIALLER,
}


def optional_address(value: str) -> Address | None:
    """Read what is advertised; None: nothing is."""
    return parse_member_address(value) if value else None


def check_advertised(
    advertised: AdvertisedSection, listen: BrokerListenSection | None, problems: list[ConfigProblem]
) -> None:
    """Note what others could not dial, and what nobody listens on; listen: None where it is wrong itself."""
    listened = dict(listen.listeners) if listen else {}
    for each in advertised.listeners if listen else ():
        if each.protocol not in listened:
            problem = f"is {each.protocol}, which listen.listeners has not"
            problems.append(ConfigProblem("advertised.listeners", str(each), problem, "give both, or none"))
    for key, value in (("client", advertised.client), ("broker", advertised.broker)):
        try:
            optional_address(value)
        except ValueError as error:
            problems.append(ConfigProblem(f"advertised.{key}", value, str(error), "give host:port"))
    for each in advertised.listeners:
        _check_dialled("advertised.listeners", each.address, str(each), "give host:port", problems)
    if listen is None:
        return
    given = {each.protocol for each in advertised.listeners}
    for each in listen.listeners:
        if each.protocol not in given:
            remedy = f'name it in advertised.listeners, as ["{each.protocol}://HOST:{each.address.port}"]'
            _check_dialled("listen.listeners", each.address, str(each), remedy, problems)
    for key, address, value in (
        ("client", listen.client, advertised.client),
        ("broker", listen.broker, advertised.broker),
    ):
        if address is not None and not value:
            remedy = f'set advertised.{key}, as "HOST:{address.port}"'
            _check_dialled(f"listen.{key}", address, str(address), remedy, problems)


def _check_dialled(
    field: str, address: Address, value: str, remedy: str, problems: list[ConfigProblem]
) -> None:
    """Note an address that would be advertised, and that nobody can dial."""
    try:
        parse_member_address(str(address))
    except ValueError:
        problem = "is advertised, and names no machine that others could dial"
        problems.append(ConfigProblem(field, value, problem, remedy))


def what_is_open(client: Address | None, *, has_access_lists: bool) -> str:
    """Return a warning that whoever reaches the plain port of clients may do everything; "": he may not.

    Args:
        client: listen.client.
        has_access_lists: whether they decide what everybody may do.
    """
    if client is None or is_loopback(client) or has_access_lists:
        return ""
    return (
        f"listen.client {client} is not on loopback, has no TLS, and whoever reaches it may do everything "
        '(set listen.client = "" and listen.listeners = ["SASL_SSL://…"], or security.authorizer_class_name)'
    )


def check_listen(listen: BrokerListenSection, problems: list[ConfigProblem]) -> None:
    """Note ports that are given twice, and clients without any."""
    seen: dict[int, str] = {}
    clients = {"client": listen.client, **{f"listeners {name}": at for name, at in listen.listeners}}
    if not any(clients.values()):
        problem = "leaves clients no port, for listen.listeners is empty too"
        problems.append(ConfigProblem("listen.client", '""', problem, "give one of them, or both"))
    for key, address in {**clients, "broker": listen.broker, "admin": listen.admin}.items():
        if address is None:
            continue
        if address.port in seen:
            problem = f"has the port of listen.{seen[address.port]}"
            problems.append(ConfigProblem(f"listen.{key}", str(address), problem, "give each its own port"))
        seen.setdefault(address.port, key)
