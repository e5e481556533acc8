"""Entries of a broker's queue of state changes, /brokers/state/N: what a controller asks of one life of it.

Pure. An entry names its kind, the controller epoch that wrote it and the generation it is for, so that a
reader skips what is not for it without looking further. What is asked is the body of the very control request
that goes to the broker listener otherwise; which bytes those are is not known here.
Source: docs/internals/requirements.md, [0.disc2]; ARCHITECTURE.md, "Life of a controller"; KIP-380
(generations).
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from enum import StrEnum

from quorum.metadata.decode import INT64_MAX, JsonFields
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch


class ChangeKind(StrEnum):
    """What an entry asks for; the names are those of Kafka's control requests."""

    LEADER_AND_ISR = "LeaderAndIsr"
    STOP_REPLICA = "StopReplica"
    UPDATE_METADATA = "UpdateMetadata"


@dataclass(frozen=True, slots=True)
class QueueEntryRecord:
    """The value of /brokers/state/N/…, version 1."""

    kind: ChangeKind
    controller_epoch: ControllerEpoch
    #: Which life of the broker it is for.
    generation: BrokerGeneration
    #: Body of the control request, in the one version that is spoken.
    request: bytes

    def encode(self) -> bytes:
        """Return the JSON value."""
        value = {
            "version": 1,
            "kind": self.kind.value,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.generation,
            "request": base64.b64encode(self.request).decode("ascii"),
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, path: str, data: bytes | None) -> QueueEntryRecord:
        """Read the value.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(path, data)
        fields.integer("version", 1, 1)
        kind = fields.string("kind")
        if kind not in list(ChangeKind):
            fields.refuse("kind", f"one of {', '.join(ChangeKind)}")
        try:
            request = base64.b64decode(fields.string("request"), validate=True)
        except (binascii.Error, ValueError):
            fields.refuse("request", "a string in base64")
        return cls(
            ChangeKind(kind),
            ControllerEpoch(fields.integer("controller_epoch", 0)),
            BrokerGeneration(fields.integer("broker_epoch", 0, INT64_MAX)),
            request,
        )
