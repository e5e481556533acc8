"""Kill the sink's driver at random instants, and look whether the topic holds each row once.

`python -m tests.support.sink_kills --kills 20` runs real brokers and a stream that reads files. Each driver
is killed by SIGKILL, with its JVM, a random time after one of its first batches; its Python workers are left
alone, so a commit may go on while the next driver starts. The last driver runs to the end. `--form kafka`
does the same with Spark's own Kafka sink, to compare. A seed repeats the delays, not what they hit.

Exit: 0 each row once and in order, 1 otherwise (also for the other sink).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from broker.local import BlockingBrokers, brokers_in_thread
from pipeline.sink.ledger import FOLDER, Ledger, SinkState
from quorum.client import Client
from tests.support.arguments import at_least_one
from tests.support.kafka_jars import spark_connector_jars
from tests.support.nodes import eventually
from tests.support.sink_driver import (
    STARTED,
    create_topic,
    end_of_topic,
    misplaced,
    start_driver,
    write_input,
)

TOPIC = "kills"
ROWS = 1_500
#: Input for each kill: batches that a driver may finish before it is struck.
FILES_PER_KILL = 8
#: After a batch that was finished, and after the first job of a driver.
DELAY_S_MAX = 2.0
FIRST_DELAY_S_MAX = 8.0
DRIVER_DEADLINE_S = 300.0
#: For the last driver, which writes what the others left.
END_DEADLINE_S = 1_800.0


async def _state(hosts: str) -> SinkState | None:
    """Return what the quorum knows of the one sink; None: nothing yet."""
    async with Client(hosts) as client:
        names = await client.get_children(FOLDER) if await client.exists(FOLDER) else []
        for name in names:
            state, _ = await Ledger(client, name).read()
            return state
        return None


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def kill(driver: subprocess.Popen[str]) -> None:
    """Kill a driver and its JVM; what they started otherwise goes on as long as it can."""
    java = [each for each in psutil.Process(driver.pid).children(recursive=True) if each.name() == "java"]
    for each in (psutil.Process(driver.pid), *java):
        each.kill()
    driver.wait(DRIVER_DEADLINE_S)


def run_kills(
    running: BlockingBrokers, folder: Path, more: list[str], kills: int, draw: random.Random
) -> Counter[str]:
    """Start drivers and kill them, until one comes to the end; returns what the kills hit."""
    hit: Counter[str] = Counter()
    log, checkpoint = folder / "driver.log", folder / "checkpoint"
    while True:
        starts = log.read_text().count(STARTED) if log.exists() else 0
        done = len(batches(checkpoint, "commits"))
        driver = start_driver(folder, running.bootstrap, TOPIC, *more)
        # In its first batch, or in a later one, which takes less time.
        finishes = draw.choice((0, 1, 1, 2))

        def reached(
            driver: subprocess.Popen[str] = driver, starts: int = starts, goal: int = done + finishes
        ) -> bool:
            began = log.read_text().count(STARTED) > starts
            return driver.poll() is not None or (began and len(batches(checkpoint, "commits")) >= goal)

        if hit["kills"] < kills:
            eventually(reached, DRIVER_DEADLINE_S, f"the driver finishes {finishes} batches")
            try:
                driver.wait(draw.uniform(0, DELAY_S_MAX if finishes else FIRST_DELAY_S_MAX))
            except subprocess.TimeoutExpired:
                kill(driver)
                state = asyncio.run(_state(running.hosts))
                hit["kills"] += 1
                hit["batches under way"] += batches(checkpoint, "offsets") != batches(checkpoint, "commits")
                hit["manifests that were not done"] += state is not None and not state.done
                say(f"kill {hit['kills']} at {end_of_topic(running.bootstrap, TOPIC)} records")
                continue
        if driver.wait(END_DEADLINE_S) == 0:
            return hit
        raise SystemExit(f"a driver failed by itself:\n{log.read_text()[-4000:]}")


def batches(checkpoint: Path, log: str) -> set[str]:
    """Return the batches that Spark began (log offsets) or finished (log commits)."""
    return {each.name for each in (checkpoint / log).glob("[0-9]*")}


def main() -> None:
    """Run the kills and judge the topic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=at_least_one, default=20)
    parser.add_argument("--form", choices=("quorate", "kafka"), default="quorate")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    given = parser.parse_args()
    say(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="quorate-kills-") as name, brokers_in_thread(3) as running:
        folder = Path(name)
        jars = ["--jars", spark_connector_jars(folder)] if given.form == "kafka" else []
        expected = write_input(folder, files=FILES_PER_KILL * (given.kills + 1), rows=ROWS)
        asyncio.run(create_topic(running.bootstrap, TOPIC, replicas=3))
        hit = run_kills(
            running, folder, ["--form", given.form, *jars], given.kills, random.Random(given.seed)
        )
        lost, doubled, late = misplaced(running.bootstrap, TOPIC, expected)
    counts = ", ".join(f"{count} {what}" for what, count in hit.items())
    say(f"{counts}; of {expected.total()} rows {lost.total()} lost, {doubled.total()} doubled, {late} late")
    if hit["kills"] < given.kills:
        say("the input ended before the last kill: the run does not count")
    sys.exit(1 if lost or doubled or late or hit["kills"] < given.kills else 0)


if __name__ == "__main__":
    main()
