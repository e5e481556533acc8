"""Writes docs/reference/compatibility.md from the table of requests; says what the table leaves unexplained.

The page is a function of broker.server.table, and of the reasons (absent.py) and the data in this folder.
"""

from __future__ import annotations

from typing import Final

from broker.server.requests import Row, Versions
from broker.server.table import REQUESTS
from controller.wire.apis import ApiKey
from tests.compatibility.absent import REQUESTS_ABSENT, VERSIONS_ABOVE, VERSIONS_BELOW
from tests.compatibility.kafka import KAFKA, KafkaRequest, Range
from tests.compatibility.tried import SYSTEMS, SYSTEMS_TRIED, TOUR, tried
from tests.tidy.rules import REPOSITORY

_ROWS: Final[dict[int, Row]] = {int(key): row for key, row in REQUESTS.items()}
PAGE: Final = REPOSITORY / "docs" / "reference" / "compatibility.md"

_HEAD = """# Compatibility

What Quorate answers of Kafka's requests, and what was tried with it. `python -m tests.site reference`
writes this page from the table of requests (`broker/server/table.py`) and the reasons in
`tests/compatibility/absent.py`; tests compare it with the code, with a running broker and with Kafka's
jars. Where an answer differs from Kafka's or ZooKeeper's is in [DIVERGENCES.md](../../DIVERGENCES.md).

## Kafka's requests

Versions that a release of Kafka calls unstable are left out. "Clients" is the listener of clients, whose
ApiVersions says the same; "brokers" is the listener between brokers.

| number | request | Kafka 3.9 | Kafka 4.1 | clients | brokers | what is absent, and why |
|---|---|---|---|---|---|---|
"""
_CLIENTS = f"""
## Clients and tools that were tried

All of them unchanged. `make clients` repeats the tours of `tests/clients`, `make test` the rest.
{TOUR}

| client | version | tried | what it does | test |
|---|---|---|---|---|
"""
_SYSTEMS = """
## Systems that run on the quorum

Unchanged, with the addresses of the nodes where they take ZooKeeper's. Each was under load while leaders of
the quorum were killed: nothing was lost, and no session was lost that ZooKeeper would have kept.

| system | version | tried |
|---|---|---|
"""


def page() -> str:
    """Return the page as the code and the data are."""
    rows = [_request(number, request) for number, request in sorted(KAFKA.items())]
    clients = [
        f"| {each.name} | {each.version} | {each.when} | {each.did} | `{each.where}` |" for each in tried()
    ]
    systems = [f"| {name} | {version} | {SYSTEMS_TRIED} |" for name, version in SYSTEMS]
    return _HEAD + "\n".join(
        (*rows, _CLIENTS.removesuffix("\n"), *clients, _SYSTEMS.removesuffix("\n"), *systems, "")
    )


def _request(number: int, request: KafkaRequest) -> str:
    """Return the line of one request."""
    row = _ROWS.get(number)
    client, broker = (None, None) if row is None else (row.client, row.broker)
    served = _range(client)
    if row is not None and client is None and row.guarded is not None:
        served = f"{_range(row.guarded)}, with access lists"
    if row is not None and row.advertised_from is not None:
        served += f", advertised from {row.advertised_from}"
    cells = (
        *(str(number), request.name, _range(request.in_3_9), _range(request.in_4_1)),
        *(served, _range(broker), _reasons(number)),
    )
    return f"| {' | '.join(cells)} |"


def _range(versions: Range | Versions) -> str:
    if versions is None:
        return "–"
    low, high = versions
    return str(low) if low == high else f"{low}–{high}"


def _reasons(number: int) -> str:
    if number not in _ROWS:
        return REQUESTS_ABSENT.get(number, "")
    key = ApiKey(number)
    return " ".join(reasons[key] for reasons in (VERSIONS_BELOW, VERSIONS_ABOVE) if key in reasons)


def gaps() -> tuple[set[int], set[ApiKey], set[ApiKey]]:
    """Return requests of Kafka's that the table lacks, and those whose lower or higher versions it lacks."""
    absent = {number for number in KAFKA if number not in _ROWS}
    below, above = set(), set()
    for key, row in REQUESTS.items():
        served = row.client or row.guarded or row.broker
        known = [each for each in (KAFKA[key].in_3_9, KAFKA[key].in_4_1) if each is not None]
        assert served is not None
        assert known, f"Kafka has no {key.name}"
        if min(low for low, _ in known) < served.low:
            below.add(key)
        if max(high for _, high in known) > served.high:
            above.add(key)
    return absent, below, above
