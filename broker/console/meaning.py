"""What a change of a record means for the timeline: a leader moved, an ISR shrank, a broker came.

Decides kinds and words. A record that cannot be read means nothing. Pure; no state.

Source: quorum.metadata.paths and quorum.metadata.records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    ControllerRecord,
    PartitionStateRecord,
    TopicConfigRecord,
    TopicRecord,
)

_STATE: Final = re.compile(
    re.escape(paths.BROKER_TOPICS) + r"/([^/]+)/partitions/([0-9]{1,9})/state", re.ASCII
)
_TOPIC: Final = re.compile(re.escape(paths.BROKER_TOPICS) + r"/([^/]+)")
_BROKER: Final = re.compile(re.escape(paths.BROKER_IDS) + r"/([0-9]{1,10})", re.ASCII)
_SETTINGS: Final = re.compile(r"/config/(topics|brokers)/([^/]+)")
Meant = tuple[str, str, str]


def concerns(path: str) -> bool:
    """Whether a change of a znode may change how brokers and topics are."""
    return path.startswith(("/brokers/", "/config/", "/admin/")) or path in (
        paths.CONTROLLER,
        paths.COORDINATOR,
    )


def meaning(op: str, path: str, before: bytes | None, after: bytes | None) -> Iterator[Meant]:
    """Say what a change means: (kind, subject, text)."""
    try:
        yield from _meaning(op, path, before, after)
    except MetadataDecodeError:
        return


def _meaning(op: str, path: str, before: bytes | None, after: bytes | None) -> Iterator[Meant]:
    if path == paths.CONTROLLER:
        if after is not None:
            yield "controller", f"broker {ControllerRecord.decode(after).broker_id}", "became the controller"
    elif path == paths.REASSIGN_PARTITIONS:
        yield "reassignment", "cluster", "ended" if op == "d" else "was asked for"
    elif found := _BROKER.fullmatch(path):
        if op == "c":
            yield "broker-up", f"broker {found[1]}", "registered"
        elif op == "d":
            yield "broker-down", f"broker {found[1]}", "is gone"
    elif found := _STATE.fullmatch(path):
        yield from _partition(PartitionKey(found[1], int(found[2])), before, after)
    elif found := _TOPIC.fullmatch(path):
        yield from _topic(op, found[1], before, after)
    elif found := _SETTINGS.fullmatch(path):
        was, now = _settings(found[2], before), _settings(found[2], after)
        names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
        if names:
            more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
            text = f"settings changed: {', '.join(names[:_NAMES_MAX])}{more}"
            yield "settings", f"{found[1].removesuffix('s')} {found[2]}", text


def _partition(key: PartitionKey, before: bytes | None, after: bytes | None) -> Iterator[Meant]:
    if after is None or before is None:
        # It comes and goes with its topic.
        return
    was, now = PartitionStateRecord.decode(key, before), PartitionStateRecord.decode(key, after)
    name = f"{key.topic}-{key.partition}"
    if was.leader != now.leader:
        yield "leader", name, f"{_leader(was.leader)} → {_leader(now.leader)}, epoch {now.leader_epoch}"
    if set(was.isr) != set(now.isr):
        yield "isr", name, f"[{_ids(was.isr)}] → [{_ids(now.isr)}]"


#: settings that one line names
_NAMES_MAX: Final = 5


def _settings(name: str, data: bytes | None) -> Mapping[str, str]:
    # Those of topics and of brokers have one form.
    return {} if data is None else TopicConfigRecord.decode(name, data).settings


def _leader(broker_id: int) -> str:
    return "nobody" if broker_id < 0 else f"broker {broker_id}"


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _topic(op: str, name: str, before: bytes | None, after: bytes | None) -> Iterator[Meant]:
    if op == "d":
        yield "topic", name, "was deleted"
    elif after is not None and op == "c":
        count = len(TopicRecord.decode(name, after).partitions)
        yield "topic", name, f"was created with {count} partition{'s' * (count != 1)}"
    elif after is not None and before is not None:
        was, now = TopicRecord.decode(name, before).partitions, TopicRecord.decode(name, after).partitions
        if len(was) != len(now):
            yield "topic", name, f"has {len(now)} partitions, not {len(was)}"
        moved = [each for each in was.keys() & now.keys() if was[each] != now[each]]
        if moved:
            yield "reassignment", name, f"{len(moved)} partition{'s' * (len(moved) != 1)} got other replicas"
