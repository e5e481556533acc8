"""Options and columns of the sink: which there are, and what is refused before Spark starts work.

They are named as those of Spark's Kafka connector; what it does not have begins with `quorate.` or is
`stagingLocation`. Spark hands option names over in lower case.
Source: Spark's guide to its Kafka connector, "Writing Data to Kafka".
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from broker.client.client import BrokerClient
from pipeline.dialling import (
    BROKER_OPTIONS,
    SASL,
    SASL_PASSWORD_FILE,
    TLS_OPTIONS,
    BrokerDialling,
    broker_dialling,
    context_of,
    login,
    refuse_secrets,
    tls_files,
)
from pipeline.errors import OptionError
from quorum.client import Client
from quorum.client.hosts import parse_hosts
from quorum.config.logins import FileLogin
from quorum.config.tls import TlsSection

BOOTSTRAP: Final = "kafka.bootstrap.servers"
TOPIC: Final = "topic"
STAGING: Final = "stagingLocation"
CHECKPOINT: Final = "checkpointLocation"
NAME: Final = "quorate.sink"
HOSTS: Final = "quorate.hosts"
COMPRESSION: Final = "kafka.compression.type"
#: Names this process to people, at brokers.
CLIENT_ID: Final = "quorate-sink"
#: Spark's own, which the sink has no use for.
QUERY_NAME: Final = "queryName"
_KNOWN: Final = (
    *(BOOTSTRAP, TOPIC, STAGING, CHECKPOINT, NAME, HOSTS, COMPRESSION, QUERY_NAME),
    *(*BROKER_OPTIONS, *TLS_OPTIONS, SASL, SASL_PASSWORD_FILE),
)

#: {compression: Kafka's number}
CODECS: Final[Mapping[str, int]] = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}
#: Where staged files are below the checkpoint.
FOLDER: Final = "quorate-sink"
_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_BYTES: Final = (BinaryType, StringType)


class SinkOptions(NamedTuple):
    """What a query was given, checked."""

    bootstrap: str
    #: None: the column `topic` names it.
    topic: str | None
    #: Names the write in the quorum; None: the query's id does, or nothing for a batch write.
    name: str | None
    #: A URI or a path that the driver and all workers share.
    staging: str
    #: Nodes of the quorum; None: as the brokers say.
    hosts: str | None
    codec: int
    #: How brokers are dialled.
    dialling: BrokerDialling
    #: The files for TLS with the quorum; None: without.
    quorum_tls: TlsSection | None
    #: What is proved to the quorum; None: nothing.
    quorum_sasl: FileLogin | None

    def brokers(self) -> BrokerClient:
        """Return a client of the brokers, connected to nobody yet."""
        tls, proof = context_of(self.dialling.tls), self.dialling.proof
        return BrokerClient(self.bootstrap, client_id=CLIENT_ID, tls=tls, sasl=proof)

    def quorum(self, hosts: str) -> Client:
        """Return a client of the quorum, connected to nobody yet."""
        return Client(hosts, tls=context_of(self.quorum_tls), sasl=self.quorum_sasl)


def read_options(given: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """Check the options of a query.

    Args:
        given: {name in lower case: value}.
        stream: whether the query is one of Structured Streaming.
    """
    values = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in _KNOWN}
    refuse_secrets(values)
    for name, value in values.items():
        if name not in known:
            raise OptionError(name, value, "the sink has no such option", f"give one of {', '.join(_KNOWN)}")
    for option in (BOOTSTRAP, TOPIC, STAGING, NAME, HOSTS):
        if option.lower() in values and not values[option.lower()].strip():
            raise OptionError(option, values[option.lower()], "it is empty", "give a value, or leave it out")
    if BOOTSTRAP not in values:
        raise OptionError(BOOTSTRAP, None, "no broker is named", "give host:port,… of brokers")
    name_given = values.get(NAME)
    if name_given is not None and (not _NAME_PATTERN.fullmatch(name_given) or name_given.strip(".") == ""):
        raise OptionError(
            NAME,
            name_given,
            "it cannot name a znode",
            "use 1 to 200 letters, digits, dots, dashes, underscores",
        )
    compression = values.get(COMPRESSION, "none")
    if compression not in CODECS:
        raise OptionError(
            COMPRESSION, compression, "the sink cannot compress so", f"give one of {', '.join(CODECS)}"
        )
    if HOSTS in values:
        try:
            parse_hosts(values[HOSTS])
        except ValueError as error:
            raise OptionError(
                HOSTS, values[HOSTS], str(error), "give host:port,… of the quorum's nodes"
            ) from None
    return SinkOptions(
        bootstrap=values[BOOTSTRAP],
        topic=values.get(TOPIC),
        name=name_given,
        staging=_staging(values, stream=stream),
        hosts=values.get(HOSTS),
        codec=CODECS[compression],
        dialling=broker_dialling(values),
        quorum_tls=tls_files(values, TLS_OPTIONS),
        quorum_sasl=login(values, (SASL, SASL_PASSWORD_FILE)),
    )


def _staging(values: Mapping[str, str], *, stream: bool) -> str:
    if STAGING.lower() in values:
        return values[STAGING.lower()]
    if CHECKPOINT.lower() in values:
        return f"{values[CHECKPOINT.lower()].rstrip('/')}/{FOLDER}"
    if stream:
        raise OptionError(
            CHECKPOINT,
            None,
            "the sink stages rows below it",
            f"set it by .option(), or give {STAGING}: a folder that the driver and all workers share",
        )
    # One machine has it in common; a driver that does not find what its workers staged says so.
    return f"{tempfile.gettempdir()}/{FOLDER}-{os.getuid()}"


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check that the rows have what the sink writes; other columns are left out."""
    columns = {field.name: field.dataType for field in schema.fields}
    if "value" not in columns:
        shown = ", ".join(columns) or "none"
        raise OptionError("value", shown, "no column is called so", "select one as value, BINARY or STRING")
    if topic is None and "topic" not in columns:
        raise OptionError(
            TOPIC, None, "neither the option nor a column names a topic", "give the option, or a column topic"
        )
    for name in ("value", "key"):
        _check_type(columns, name, _BYTES, "BINARY or STRING")
    _check_type(columns, "topic", (StringType,), "STRING")
    _check_type(columns, "partition", (IntegerType,), "INT")
    if "headers" in columns and not _are_headers(columns["headers"]):
        raise OptionError(
            "headers",
            columns["headers"].simpleString(),
            "the column has another type",
            "cast it to ARRAY<STRUCT<key: STRING, value: BINARY>>",
        )


def _check_type(
    columns: Mapping[str, DataType], name: str, types: tuple[type[DataType], ...], told: str
) -> None:
    if name in columns and not isinstance(columns[name], types):
        raise OptionError(
            name, columns[name].simpleString(), "the column has another type", f"cast it to {told}"
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields: list[StructField] = kind.elementType.fields
    return [(each.name, type(each.dataType)) for each in fields] == [
        ("key", StringType),
        ("value", BinaryType),
    ]
