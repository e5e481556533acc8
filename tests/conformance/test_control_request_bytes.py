"""kafka-clients 3.9.1 reads our control requests and answers as we mean them, and writes the same bytes."""

from __future__ import annotations

import base64
import json
import random
import re
import subprocess
import uuid
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from kio.static.protocol import Entity

from controller.messages.entities import (
    CONTROL_VERSIONS,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tests.support.frames import pack_request, pack_response
from tests.support.kafka_jars import kafka_java_command
from tests.support.kio_samples import encoded, sample

PROGRAM = Path(__file__).parent / "java" / "ControlMessages.java"
DEADLINE_S = 60.0
ROUNDS = 40
LENGTH_BYTES = 4
PAIRS: list[tuple[type[Entity], type[Entity]]] = [
    (LeaderAndIsrRequest, LeaderAndIsrResponse),
    (StopReplicaRequest, StopReplicaResponse),
    (UpdateMetadataRequest, UpdateMetadataResponse),
    (ControlledShutdownRequest, ControlledShutdownResponse),
]


def in_kafkas_json(value: Any) -> Any:
    """Return a message as Kafka's converters write it."""
    if is_dataclass(value):
        return {
            re.sub(r"_(\w)", lambda match: match[1].upper(), each.name): in_kafkas_json(
                getattr(value, each.name)
            )
            for each in fields(value)
        }
    if isinstance(value, tuple):
        return [in_kafkas_json(each) for each in value]
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return value


def test_kafka_reads_and_writes_the_same_control_messages(tmp_path: Path) -> None:
    chance = random.Random(391)
    messages: list[Entity] = []
    frames: list[bytes] = []
    for correlation_id in range(ROUNDS):
        for request_type, response_type in PAIRS:
            request, response = sample(request_type, chance), sample(response_type, chance)
            api_key = PAIRS.index((request_type, response_type)) + 4
            head = (api_key, CONTROL_VERSIONS[api_key], correlation_id)
            frames.append(pack_request(*head, "controller-1", encoded(request), flexible=True))
            frames.append(pack_response(correlation_id, encoded(response), flexible=True))
            messages += [request, response]
    lines = [
        f"{('request', 'answer')[index % 2]} {frame[LENGTH_BYTES:].hex()}"
        for index, frame in enumerate(frames)
    ]
    done = subprocess.run(
        kafka_java_command(PROGRAM, tmp_path),
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    read = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(read) == len(frames) == ROUNDS * 2 * len(PAIRS)
    for message, frame, theirs in zip(messages, frames, read, strict=True):
        assert theirs["value"] == in_kafkas_json(message)
        assert theirs["frame"] == frame[LENGTH_BYTES:].hex()
        assert theirs["version"] == message.__version__
        assert theirs["clientId"] == "controller-1"
