"""`quorate broker`: one broker in the foreground, until a signal, a stop of its own, or its supervisor's end.

The only place where a process-wide setting is made for a broker: the event loop, logging, signals, open
files, the collector's thresholds.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quorum.errors import UsageError
from quorum.platform.foreground import add_server_arguments, stop_requests
from quorum.platform.logs import set_up_logging
from quorum.platform.open_files import raise_open_files
from quorum.platform.service_manager import telling

if TYPE_CHECKING:
    from broker.config.broker import BrokerConfig
    from broker.lifecycle.broker import Broker

HELP = "run one broker in the foreground"
DESCRIPTION = """\
Run one Kafka broker until SIGTERM or Ctrl-C. It registers with the quorum, competes for the controller, and
serves Kafka clients. Settings come from the configuration file, then from the environment
(QUORATE_BROKER_<SECTION>_<KEY>), then from --set; deploy/broker.toml shows every key. SIGTERM closes its
session, so that the controller moves its partitions at once."""
EXAMPLES = """\
examples:
  quorate broker --config broker.toml
  quorate broker --config broker.toml --set listen.client=127.0.0.1:9092
"""

log = logging.getLogger("quorate.broker")

#: How many young objects the collector looks at in one go, which holds the loop; how many of these rounds
#: make one of the next generation, and how many of those one of all objects.
GC_THRESHOLDS = (10_000, 20, 500)
#: {distribution of the extra: its module}
_NEEDED = {"kio": "kio", "cramjam": "cramjam", "crc32c": "crc32c", "google-re2": "re2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--config", metavar="FILE", required=True, type=Path, help="the broker's broker.toml")
    add_server_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the broker.

    Returns:
        0 after a clean stop.
    """
    require_extra()
    import uvloop

    from broker.config.broker import load_broker_config
    from quorum.config.settings import flag_overrides

    config = load_broker_config(arguments.config, os.environ, flag_overrides(arguments.settings))
    set_up_logging(config.log.format, f"broker {config.broker.id}")
    gc.set_threshold(*GC_THRESHOLDS)
    # kio loads it wherever it is installed, for tests of its users: a third of what a broker loads.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    log.info("broker %d starts with %s", config.broker.id, config.masked())
    log.info("at most %d files and sockets may be open", raise_open_files())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, arguments.parent_fd))
    return 0


def require_extra() -> None:
    """Refuse to run where what brokers need is not installed."""
    missing = [name for name, module in _NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not installed", "pip install 'quorate[brokers]'")


async def _serve(config: BrokerConfig, parent_fd: int | None) -> None:
    from broker.lifecycle.broker import Broker, stopped_error

    broker = Broker(config)
    asyncio.get_running_loop().set_exception_handler(functools.partial(_escaped, broker))
    with stop_requests(parent_fd, broker.reload) as stop_request:
        starting = asyncio.ensure_future(broker.start())
        first: set[asyncio.Future[Any]] = {stop_request, starting}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            log.info("broker %d stops before it has started: %s", config.broker.id, stop_request.result())
            starting.cancel()
            await asyncio.wait([starting])
            return
        starting.result()
        gc.freeze()
        stopped = asyncio.ensure_future(broker.run_until_stopped())
        either: set[asyncio.Future[Any]] = {stop_request, stopped}
        async with telling(broker.state.readiness):
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if stop_request.done():
            log.info("broker %d stops: %s", config.broker.id, stop_request.result())
        await broker.stop()
        await stopped
    if (error := stopped_error(broker)) is not None:
        if broker.state.failure is not None:
            log.error("broker %d stopped itself", config.broker.id, exc_info=broker.state.failure)
        raise error
    log.info("broker %d stopped", config.broker.id)


def _escaped(broker: Broker, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An exception left a callback of the loop: report it, and stop the broker; something is half done."""
    loop.default_exception_handler(context)
    error = context.get("exception")
    if error is not None and "handle" in context:
        broker.fail(error)
