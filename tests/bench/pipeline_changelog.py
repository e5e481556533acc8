"""The change log source: transactions of one changed znode, from one node to Spark, every column."""

from __future__ import annotations

import asyncio
from functools import partial

from quorum.client import Client
from tests.bench.pipeline_case import Bench, Timed
from tests.support.nodes import QuorateNodes

PATHS = 1_000
VALUE_BYTES = 100
IN_FLIGHT = 500


def run(bench: Bench) -> list[Timed]:
    """Commit transactions, and read all of them, and once more with the tree before them."""
    with QuorateNodes(nodes=1, settings={}) as nodes:
        last_zxid = asyncio.run(fill(nodes.hosts, bench.rows))
        first_zxid = last_zxid - bench.rows + 1

        def read(bootstrap: str) -> None:
            reader = bench.spark.read.format("quorate-changelog").option("bootstrap", bootstrap)
            reader = reader.option("startingZxid", first_zxid).option("endingZxid", last_zxid)
            frame = reader.option("quorate.admin", nodes.admin_url(1)).load()
            frame.write.format("noop").mode("overwrite").save()

        name = f'{VALUE_BYTES}-byte values: format("quorate-changelog")'
        return [
            bench.timed(name, bench.rows, "transactions", partial(read, "false")),
            bench.timed(f"{name} behind {PATHS:,} znodes", bench.rows, "transactions", partial(read, "true")),
        ]


async def fill(hosts: str, transactions: int) -> int:
    """Write the paths in turn; returns the last zxid."""
    async with Client(hosts) as client:
        paths = [f"/bench-{number:06}" for number in range(PATHS)]
        for path in paths:
            await client.create(path, bytes(VALUE_BYTES))
        for first in range(0, transactions, IN_FLIGHT):
            count = min(IN_FLIGHT, transactions - first)
            written = [
                client.set(paths[number % PATHS], number.to_bytes(VALUE_BYTES, "big"))
                for number in range(first, first + count)
            ]
            last = (await asyncio.gather(*written))[-1]
        return last.mzxid
