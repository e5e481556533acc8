"""What `quorate status` shows of the brokers: the controller, the brokers, and partitions in trouble.

Reads the controller and the registrations from the quorum, and the partitions from the controller's own HTTP
port, which knows them; znodes of partitions are never scanned. No state.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from quorum.admin.client import get
from quorum.client import Client
from quorum.config.logins import PROVING
from quorum.errors import QuorateError, UnreachableError, printable
from quorum.metadata import paths
from quorum.metadata.reading import read_node, registered_brokers
from quorum.metadata.records import BrokerRecord, ControllerRecord, decode_controller_epoch
from quorum.platform.terminal import table
from quorum.platform.tls import DIALLING

#: Partitions that the text names one by one.
SHOWN_MAX: Final = 10
#: what a broker is reached at by other brokers, which is no address for clients
_OF_BROKERS: Final = "BROKER://"


def read_control_plane(hosts: str, timeout_s: float) -> dict[str, Any] | None:
    """Ask the quorum, and the controller.

    Args:
        hosts: client ports of the quorum, "host:port,…".
        timeout_s: for the quorum as a whole, and for the controller.

    Returns:
        controller_id and controller_epoch (null: none), brokers (broker_id, generation, address: of the plain
        listener, or where there is none "SSL://host:port,…" of the others, rack, admin, stranger: why it
        does not count, or null where the controller says nothing of the kind),
        under_replicated and offline (lists of [topic, partition]; null where the controller does not
        answer), problem: why it does not, or null. None where no broker was ever registered.
    """
    try:
        found = asyncio.run(_read(hosts, timeout_s))
    except (QuorateError, TimeoutError) as error:
        reason = str(error) or f"nothing came within {timeout_s:g} s"
        return {"problem": f"the quorum at {hosts} does not answer: {reason}", "brokers": []}
    if found is None:
        return None
    admin = next(
        (each["admin"] for each in found["brokers"] if each["broker_id"] == found["controller_id"]), None
    )
    answer = _ask_controller(admin, timeout_s)
    strangers = answer.pop("strangers", {})
    for each in found["brokers"]:
        each["stranger"] = strangers.get(str(each["broker_id"]), each["stranger"])
    return {**found, **answer}


async def _read(hosts: str, timeout_s: float) -> dict[str, Any] | None:
    tls, sasl = DIALLING.get(), PROVING.get()
    async with asyncio.timeout(timeout_s), Client(hosts, tls=tls, sasl=sasl) as client:
        if await client.exists(paths.BROKER_IDS) is None:
            return None
        controller = await read_node(client, paths.CONTROLLER)
        epoch = await read_node(client, paths.CONTROLLER_EPOCH)
        brokers = await registered_brokers(client)
    if not brokers and epoch is None:
        return None
    return {
        "controller_id": None if controller is None else ControllerRecord.decode(controller.data).broker_id,
        "controller_epoch": None if epoch is None else decode_controller_epoch(epoch.data),
        "brokers": [
            {
                "broker_id": broker_id,
                "generation": generation,
                **_described(record),
            }
            for broker_id, (generation, record) in brokers.items()
        ],
    }


def _described(record: BrokerRecord | str) -> dict[str, Any]:
    if isinstance(record, str):
        return {"address": "-", "rack": None, "admin": None, "stranger": record}
    address = f"{record.host}:{record.port}"
    if record.host is None:
        clients = [each for each in record.endpoints if not each.startswith(_OF_BROKERS)]
        address = ",".join(clients) or "-"
    return {
        "address": address,
        "rack": record.rack,
        "admin": record.admin,
        "stranger": None,
    }


def _ask_controller(admin: str | None, timeout_s: float) -> dict[str, Any]:
    unknown = {"under_replicated": None, "offline": None}
    if admin is None:
        return {**unknown, "problem": "no broker is the controller now"}
    try:
        code, body = get(admin, "/v1/status", timeout_s)
        controller = json.loads(body)["controller"] if code == 200 else None
        if controller is None:
            return {**unknown, "problem": f"{admin} is not the controller any more"}
        return {
            "under_replicated": controller["under_replicated"],
            "offline": controller["offline"],
            "strangers": dict(controller["strangers"]),
            "problem": None,
        }
    except (UnreachableError, ValueError, KeyError, TypeError) as error:
        reason = error.message if isinstance(error, UnreachableError) else "not a broker's status"
        return {**unknown, "problem": f"the controller's port {admin} does not answer: {reason}"}


def describe_control_plane(found: Mapping[str, Any]) -> list[str]:
    """Lay it out for a person."""
    if "controller_id" not in found:
        return [f"brokers  {printable(str(found['problem']))}"]
    controller = found["controller_id"]
    epoch = f"epoch {found['controller_epoch']}"
    lines = [f"{'control'.ljust(9)}{'none' if controller is None else f'broker {controller}'}, {epoch}"]
    if found["problem"] is not None:
        lines.append(f"{'problem'.ljust(9)}{printable(found['problem'])}")
    else:
        lines.append(f"{'offline'.ljust(9)}{_partitions(found['offline'])}")
        lines.append(f"{'lagging'.ljust(9)}{_partitions(found['under_replicated'])} (under-replicated)")
    rows = [
        [each["broker_id"], each["generation"], printable(each["address"]), printable(each["rack"] or "-")]
        for each in found["brokers"]
    ]
    strangers = [each for each in found["brokers"] if each["stranger"] is not None]
    lines += [
        f"{'stranger'.ljust(9)}broker {each['broker_id']}: {printable(each['stranger'])}"
        for each in strangers[:SHOWN_MAX]
    ]
    if len(strangers) > SHOWN_MAX:
        lines.append(f"{'stranger'.ljust(9)}and {len(strangers) - SHOWN_MAX} more")
    return [*lines, "", *table(["BROKER", "GENERATION", "ADDRESS", "RACK"], rows)]


def _partitions(keys: list[list[Any]]) -> str:
    named = ", ".join(printable(f"{topic}-{partition}") for topic, partition in keys[:SHOWN_MAX])
    more = f", and {len(keys) - SHOWN_MAX} more" if len(keys) > SHOWN_MAX else ""
    return f"{len(keys)} partitions" + (f": {named}{more}" if keys else "")
