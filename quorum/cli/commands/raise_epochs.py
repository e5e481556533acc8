"""`quorate raise-epochs`: after a restore, lets the quorum know the leader epochs of the brokers' logs.

Raises `leader_epoch` in the states of partitions and changes nothing else. Keeps nothing: a run that was
interrupted is made again.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from quorum.cli.commands.shell import DEFAULT_HOSTS, prover
from quorum.cli.commands.status import add_sasl_options, add_tls_options
from quorum.errors import Fault, QuorateError, UsageError, shown

if TYPE_CHECKING:
    from quorum.client import Client
    from quorum.metadata.paths import PartitionKey
    from quorum.metadata.records import PartitionStateRecord

HELP = "raise the leader epochs of partitions to those of the brokers' logs, after a restore"
DESCRIPTION = """\
Keep the brokers' records after the quorum was restored or forced to an earlier state. FILE has a line
TOPIC-PARTITION EPOCH for each partition, as a broker that refuses such a quorum names them in its log. Of
several lines of a partition the highest epoch counts.

Nothing is changed while a broker is registered, or where a line or a partition is wrong. An epoch is never
lowered. The command may be interrupted, and run again."""
EXAMPLES = """\
examples:
  quorate raise-epochs epochs.txt
  quorate raise-epochs --hosts 10.0.0.1:2181 --peer-secret data/peer.secret - < epochs.txt
"""
_TIMEOUT_MS: Final = 30_000.0
#: Partitions whose states are read, or written, at a time.
_CHUNK: Final = 500
#: Named in an error.
_SHOWN_MAX: Final = 5
_LINE: Final = re.compile(r"(?!\.{1,2}-[0-9]+\s)([a-zA-Z0-9._-]{1,249})-([0-9]{1,9})\s+([0-9]{1,10})")
#: The controller elects in the next one, which must have room in Kafka's protocol.
_EPOCH_MAX: Final = 2**31 - 2


class BrokersRegisteredError(QuorateError):
    """Brokers are registered, and a controller among them may elect meanwhile; nothing was changed."""

    fault = Fault.OPERATOR


class StateChangedError(QuorateError):
    """Somebody else has changed a partition's state meanwhile; it is as they left it."""

    fault = Fault.OPERATOR


class _Found(NamedTuple):
    """A partition's state, and the version of its znode."""

    key: PartitionKey
    state: PartitionStateRecord
    version: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument(
        "--hosts",
        metavar="H:P,…",
        default=DEFAULT_HOSTS,
        help=f"client ports of the quorum (default: {DEFAULT_HOSTS})",
    )
    add_tls_options(parser)
    add_sasl_options(parser)
    parser.add_argument(
        "--peer-secret",
        metavar="FILE",
        type=Path,
        help="the brokers' peer secret, where their znodes are protected",
    )
    parser.add_argument("file", metavar="FILE", help="lines TOPIC-PARTITION EPOCH; -: standard input")


def run(arguments: argparse.Namespace) -> int:
    """Raise the epochs; returns the exit code."""
    from quorum.config.logins import PROVING
    from quorum.platform.tls import DIALLING

    wanted = read_epochs(arguments.file)
    prove = prover(arguments.peer_secret)

    async def ask() -> int:
        from quorum.client import Client, NoAuthError

        try:
            client = Client(arguments.hosts, tls=DIALLING.get(), sasl=PROVING.get())
        except ValueError as error:
            raise UsageError(str(error), "write --hosts host:port,host:port") from error
        await client.start(_TIMEOUT_MS)
        try:
            if prove is not None:
                await prove(client)
            return await _raise_all(client, wanted)
        except NoAuthError as error:
            remedy = "give --peer-secret FILE, the secret of these brokers"
            raise UsageError("the states of partitions are for the brokers alone", remedy) from error
        finally:
            await client.close()

    return asyncio.run(ask())


def read_epochs(name: str) -> dict[PartitionKey, int]:
    """Read lines TOPIC-PARTITION EPOCH of a file, "-" is standard input; empty lines do not count.

    Returns:
        {partition: the highest epoch that it is given}, sorted; at least one.

    Raises:
        UsageError: the file cannot be read, a line is something else, or there is none.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise UsageError(f"{shown(name)} cannot be read: {reason}", "name a file of epochs") from error
    epochs = _epochs(name, text.splitlines())
    if not epochs:
        remedy = 'make it from the brokers\' logs: docs/operate/backup.md, "Brokers"'
        raise UsageError(f"{shown(name)} names no partition", remedy)
    return dict(sorted(epochs.items()))


def _epochs(name: str, lines: Iterable[str]) -> dict[PartitionKey, int]:
    from quorum.metadata.paths import PartitionKey

    epochs: dict[PartitionKey, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or int(match[3]) > _EPOCH_MAX:
            raise UsageError(
                f"{shown(name)}, line {number}: {shown(line)} is no partition and epoch up to {_EPOCH_MAX}",
                "write TOPIC-PARTITION EPOCH, such as: orders-0 7",
            )
        key = PartitionKey(match[1], int(match[2]))
        epochs[key] = max(epochs.get(key, 0), int(match[3]))
    return epochs


async def _raise_all(client: Client, wanted: dict[PartitionKey, int]) -> int:
    from quorum.metadata.reading import registered_brokers

    # What a node answers may be behind what others have acknowledged.
    await client.sync("/")
    if brokers := await registered_brokers(client):
        listed = ", ".join(map(str, list(brokers)[:_SHOWN_MAX])) + (
            ", …" if len(brokers) > _SHOWN_MAX else ""
        )
        raise BrokersRegisteredError(
            f"brokers are registered in /brokers/ids: {listed}",
            "stop every broker and run this again; a registration goes at the latest with its session",
        )
    found = await _read(client, list(wanted))
    lower = [each for each in found if each.state.leader_epoch < wanted[each.key]]
    for each in found:
        if each.state.leader_epoch >= wanted[each.key]:
            print(f"{_name(each.key)}: leader epoch {each.state.leader_epoch} stays")
    for start in range(0, len(lower), _CHUNK):
        chunk = lower[start : start + _CHUNK]
        await asyncio.gather(*(_raise(client, each, wanted[each.key]) for each in chunk))
    print(f"raised the leader epochs of {len(lower)} of {len(found)} partitions")
    return 0


async def _read(client: Client, keys: Sequence[PartitionKey]) -> list[_Found]:
    from quorum.metadata import paths
    from quorum.metadata.reading import read_node
    from quorum.metadata.records import PartitionStateRecord

    found: list[_Found] = []
    unknown: list[PartitionKey] = []
    for start in range(0, len(keys), _CHUNK):
        chunk = keys[start : start + _CHUNK]
        nodes = await asyncio.gather(*(read_node(client, paths.partition_state_path(key)) for key in chunk))
        for key, node in zip(chunk, nodes, strict=True):
            if node is None:
                unknown.append(key)
            else:
                state = PartitionStateRecord.decode(key, node.data)
                found.append(_Found(key, state, node.stat.version))
    if unknown:
        listed = ", ".join(map(_name, unknown[:_SHOWN_MAX])) + (", …" if len(unknown) > _SHOWN_MAX else "")
        raise UsageError(
            f"the quorum has no state of {len(unknown)} partitions: {listed}",
            "take their lines away, or name the brokers' quorum by --hosts; nothing was changed",
        )
    return found


async def _raise(client: Client, found: _Found, epoch: int) -> None:
    from dataclasses import replace

    from quorum.client import BadVersionError, NoNodeError
    from quorum.metadata.numbers import LeaderEpoch
    from quorum.metadata.paths import partition_state_path

    state = replace(found.state, leader_epoch=LeaderEpoch(epoch))
    try:
        await client.set(partition_state_path(found.key), state.encode(), found.version)
    except (BadVersionError, NoNodeError) as error:
        raise StateChangedError(
            f"the state of {_name(found.key)} was changed by somebody else meanwhile",
            "stop every broker and run this again",
        ) from error
    print(f"{_name(found.key)}: leader epoch {found.state.leader_epoch} → {epoch}")


def _name(key: PartitionKey) -> str:
    return f"{key.topic}-{key.partition}"
