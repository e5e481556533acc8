"""`quorate serve`: one node in the foreground, until a signal, a stop of its own, or its supervisor's end.

The only place where a process-wide setting is made for a node: the event loop, logging, signals, open files,
the collector's thresholds. Hard and soft state belong to the node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorum.config.settings import flag_overrides
from quorum.errors import NodeStoppedError, QuorateError
from quorum.platform.foreground import add_server_arguments, stop_requests
from quorum.platform.logs import set_up_logging
from quorum.platform.open_files import raise_open_files
from quorum.platform.service_manager import telling

if TYPE_CHECKING:
    from quorum.config.node import NodeConfig
    from quorum.node.node import QuorumNode

HELP = "run one quorum node in the foreground"
DESCRIPTION = """\
Run one quorum node until SIGTERM or Ctrl-C. Settings come from the configuration file, then from the
environment (QUORATE_<SECTION>_<KEY>), then from --set. The first start of a new cluster needs --bootstrap on
every founding node, and once all of them at the same time. The first start of a node that was added or
replaced needs --join, and in [members] the present members and itself. On a formatted directory both change
nothing, so they may stay in a start script.

A founder with an empty directory founds only together with all others in [members], each of them empty. Where
one of them is missing it waits, and where one belongs to a cluster it says so and waits to be let in (quorate
members replace).

--force-new-cluster is for a majority that is lost for good: this node goes on from its own data as the only
member of a new cluster. What the others acknowledged and this node never received is lost. It is ignored on a
directory that was forced before."""
EXAMPLES = """\
examples:
  quorate serve --config node.toml --bootstrap      the first start of a founding node
  quorate serve --config node.toml --join           the first start of an added or replaced node
  quorate serve --config node.toml
  quorate serve --config node.toml --set limits.tick_ms=1000
"""

log = logging.getLogger("quorate.serve")

#: Allocations of young objects before the collector looks at them: a batch must not be a collection.
GC_YOUNG_OBJECTS_MAX = 50_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--config", metavar="FILE", required=True, type=Path, help="the node's node.toml")
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--bootstrap",
        action="store_true",
        help="format an empty data directory as that of a founder, which founds together with all others",
    )
    start.add_argument(
        "--join",
        action="store_true",
        help="format an empty data directory as that of an added or replaced node",
    )
    start.add_argument(
        "--force-new-cluster",
        action="store_true",
        help="majority lost for good: go on from this node's data as the only member of a new cluster",
    )
    add_server_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the node.

    Returns:
        0 after a clean stop.
    """
    import uvloop

    from quorum.config.node import load_node_config

    config = load_node_config(arguments.config, os.environ, flag_overrides(arguments.settings))
    set_up_logging(config.log.format, f"node {config.node.id}")
    gc.set_threshold(GC_YOUNG_OBJECTS_MAX, 20, 100)
    log.info("node %d starts with %s", config.node.id, config.masked())
    log.info("at most %d files and sockets may be open", raise_open_files())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, arguments))
    return 0


async def _serve(config: NodeConfig, arguments: argparse.Namespace) -> None:
    from quorum.node.node import QuorumNode, Start

    start = Start.PLAIN
    if arguments.bootstrap:
        start = Start.BOOTSTRAP
    elif arguments.join:
        start = Start.JOIN
    elif arguments.force_new_cluster:
        start = Start.FORCE_NEW_CLUSTER
    node = QuorumNode(config, start=start)
    asyncio.get_running_loop().set_exception_handler(functools.partial(_escaped, node))
    with stop_requests(arguments.parent_fd, node.reload) as stop_request:
        if not await _start(node, stop_request):
            log.info("node %d stopped before it had started: %s", config.node.id, stop_request.result())
            return
        # what was loaded stays: a full collection over a large tree would be a pause
        gc.freeze()
        stopped = asyncio.ensure_future(node.run_until_stopped())
        either: set[asyncio.Future[Any]] = {stop_request, stopped}
        async with telling(node.view.readiness):
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stop_request.done():
            log.info("node %d stops: %s", config.node.id, stop_request.result())
        await node.stop(hand_over=True)
        await stopped
    if node.failure is not None:
        if not isinstance(node.failure, QuorateError):
            log.error("node %d stopped itself for no foreseen reason", config.node.id, exc_info=node.failure)
        raise NodeStoppedError.of(config.node.id, node.failure)
    log.info("node %d stopped", config.node.id)


def _escaped(node: QuorumNode, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception left a callback of the loop: tell it, and stop the node, for something is half done."""
    loop.default_exception_handler(context)
    error = context.get("exception")
    if error is not None and "handle" in context:
        node.fail(error)


async def _start(node: QuorumNode, stop_request: asyncio.Future[str]) -> bool:
    """Start the node; returns whether it did before it was asked to stop."""
    starting = asyncio.ensure_future(node.start())
    either: set[asyncio.Future[Any]] = {stop_request, starting}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if starting.done():
        starting.result()
        return True
    await node.stop()
    with contextlib.suppress(NodeStoppedError):
        await starting
    return False
