"""Options of sources and sinks about what they dial: certificates, and by which proof.

Decides which options go together, and that no password is an option: Spark shows options in plans, logs and
its pages. Secrets are in files that the driver and all workers have under the same name. No state.
Source: Spark's guide to its Kafka connector, "Security"; librdkafka's configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from broker.client.proofs import MECHANISMS, BrokerProof
from pipeline.errors import OptionError
from quorum.config.logins import FileLogin, read_login, read_password
from quorum.config.tls import TlsSection, read_material
from quorum.errors import ConfigError, UsageError
from quorum.platform.tls import MakeContext

CA: Final = "quorate.ca"
CERT: Final = "quorate.cert"
KEY: Final = "quorate.key"
SASL: Final = "quorate.sasl"
SASL_PASSWORD_FILE: Final = "quorate.saslPasswordFile"  # noqa: S105 - the name of an option
PASSWORD_FILE: Final = "quorate.passwordFile"  # noqa: S105 - the name of an option
PROTOCOL: Final = "kafka.security.protocol"
MECHANISM: Final = "kafka.sasl.mechanism"
USERNAME: Final = "kafka.sasl.username"
KAFKA_CA: Final = "kafka.ssl.ca.location"
KAFKA_CERT: Final = "kafka.ssl.certificate.location"
KAFKA_KEY: Final = "kafka.ssl.key.location"
#: of a quorum or an admin port
TLS_OPTIONS: Final = (CA, CERT, KEY)
#: of brokers
KAFKA_TLS_OPTIONS: Final = (KAFKA_CA, KAFKA_CERT, KAFKA_KEY)
BROKER_OPTIONS: Final = (PROTOCOL, MECHANISM, USERNAME, PASSWORD_FILE, *KAFKA_TLS_OPTIONS)
PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_SECRET: Final = re.compile(r"password(?!file$)|secret|jaas|\.pem$|oauthbearer\.config", re.IGNORECASE)
_BOTH: Final = "give both, or none"


class BrokerDialling(NamedTuple):
    """How brokers are dialled.

    Attributes:
        tls: the files; None: without TLS. proof: what is proved; None: nothing.
    """

    tls: TlsSection | None = None
    proof: BrokerProof | None = None


def refuse_secrets(values: Mapping[str, str]) -> None:
    """Refuse options that are secrets themselves; the error does not show them."""
    for name in values:
        if _SECRET.search(name):
            remedy = f"put the password into a file of mode 0600, and name it by {PASSWORD_FILE}"
            raise OptionError(name, "***", "would be seen in plans and logs", remedy)


def tls_files(values: Mapping[str, str], names: tuple[str, str, str]) -> TlsSection | None:
    """Return the files that three options name; None: none of them is given.

    Args:
        values: {name in lower case: value}. names: of the authorities, the certificate and its key.
    """
    ca, cert, key = (values.get(name.lower()) for name in names)
    for option, given, missing, other in (
        (names[1], cert, names[2], key),
        (names[2], key, names[1], cert),
        (names[1], cert, names[0], ca),
    ):
        if given is not None and other is None:
            raise OptionError(option, given, f"{missing} is not given", _BOTH)
    if ca is None:
        return None
    section = TlsSection(None if cert is None else Path(cert), None if key is None else Path(key), Path(ca))
    try:
        read_material(section, "")
    except ConfigError as error:
        first = error.problems[0]
        part = {"certificate": names[1], "key": names[2]}.get(first.field[5:-5], names[0])
        raise OptionError(part, values[part.lower()], first.problem, first.remedy) from None
    return section


def context_of(files: TlsSection | None) -> MakeContext | None:
    """Return what makes contexts of these files, read now; None: without TLS."""
    return None if files is None else read_material(files, "").dialling


def login(values: Mapping[str, str], names: tuple[str, str]) -> FileLogin | None:
    """Return the login that two options mean; None: neither is given."""
    name, file = (values.get(each.lower()) for each in names)
    try:
        return read_login(name, None if file is None else Path(file), names)
    except UsageError as error:
        raise OptionError(names[1], file, error.message, error.remedy) from None


def broker_dialling(values: Mapping[str, str]) -> BrokerDialling:
    """Check BROKER_OPTIONS, and return what they mean.

    Args:
        values: {name in lower case: value}.
    """
    protocol = values.get(PROTOCOL, "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise OptionError(PROTOCOL, values[PROTOCOL], "is no protocol", f"give one of {', '.join(PROTOCOLS)}")
    files = tls_files(values, KAFKA_TLS_OPTIONS)
    if (files is not None) != protocol.endswith("ssl"):
        option = KAFKA_CA if files is None else PROTOCOL
        problem = f"{PROTOCOL} is {protocol}" if files is None else f"{KAFKA_CA} is given"
        remedy = "name who signs the brokers" if files is None else "set ssl or sasl_ssl"
        raise OptionError(option, values.get(option), problem, remedy)
    found = login(values, (USERNAME, PASSWORD_FILE))
    if (found is not None) != protocol.startswith("sasl_"):
        option = USERNAME if found is None else PROTOCOL
        problem = f"{PROTOCOL} is {protocol}" if found is None else f"{USERNAME} is given"
        remedy = f"give it, and {PASSWORD_FILE}" if found is None else "set sasl_ssl"
        raise OptionError(option, values.get(option), problem, remedy)
    mechanism = values.get(MECHANISM, "")
    if found is None:
        return BrokerDialling(files)
    if mechanism not in MECHANISMS:
        remedy = f"give one of {', '.join(MECHANISMS)}"
        raise OptionError(MECHANISM, mechanism or None, "is no mechanism of a name and a password", remedy)
    return BrokerDialling(files, BrokerProof(found, mechanism))


def password_of(path: str) -> str:
    """Return the password in the file that PASSWORD_FILE names."""
    try:
        return read_password(Path(path), PASSWORD_FILE)
    except ConfigError as error:
        first = error.problems[0]
        raise OptionError(PASSWORD_FILE, path, first.problem, first.remedy) from None
