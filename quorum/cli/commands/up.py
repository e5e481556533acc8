"""`quorate up`: a local cluster as supervised processes, in the foreground or detached.

Detached, the same command runs again as a process of a session of its own, whose output the first one shows
until it is ready; then it writes to its log. So there is one way to start and one place for every check.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from quorum.errors import DataDirError, shown
from quorum.launcher.child import HOST, PROGRAM, child_environment
from quorum.launcher.layout import (
    DEFAULT_BROKERS,
    DEFAULT_NODES,
    DEFAULT_PORTS,
    Layout,
    check_ports_free,
    plan,
    write,
)
from quorum.launcher.probe import admin_url
from quorum.platform.logs import JSON, add_log_format, json_line, set_up_logging
from quorum.platform.os_runtime import OsDisk
from quorum.platform.runtime import DataDirInUseError
from quorum.platform.terminal import Console, table

HELP = "start a local cluster and keep it running"
DESCRIPTION = """\
Start a quorum and its brokers as local processes, show where they listen, and keep them running: one that
dies is started again. Ctrl-C stops all of it cleanly. Starting again on the same data directory resumes it.
Process i of a kind listens on each first port + i - 1; brokers also on --broker-port + 100 for each other and
+ 200 for HTTP. With fewer --brokers than there are, the others do not run this time.

It is ready when a node is and the others are or cannot be soon, and says which are not, why, and what to do.
A node whose data directory is lost waits to be let in; the line says by which command."""
EXAMPLES = """\
examples:
  quorate up                                   three nodes on 2181-2183, three brokers on 9092-9094
  quorate up --nodes 1 --brokers 0 --data-dir /tmp/one
  quorate up --detach && quorate status && quorate down
"""
READY_DEADLINE_S = 120
_PURPOSES = {"client": "ZooKeeper clients", "peer": "the nodes", "admin": "HTTP", "broker": "Kafka clients"}
_CONSOLE_HELP = "port of the console; 0: none (default: 8080, or as before)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    for name, default in (("nodes", DEFAULT_NODES), ("brokers", DEFAULT_BROKERS)):
        what = f"how many {name} (default: {default}, or as many as there are)"
        parser.add_argument(f"--{name}", type=_number, metavar="N", help=what)
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="where everything is kept (default: ./data)",
    )
    for key, default in DEFAULT_PORTS.items():
        what = f"first port for {_PURPOSES.get(key)} (default: {default}, or as before)"
        what = _CONSOLE_HELP if key == "console" else what
        parser.add_argument(f"--{key}-port", type=_number, metavar="PORT", help=what)
    about = "how all processes write their logs: text, or json (default: as their files say, else text)"
    add_log_format(parser, about)
    parser.add_argument("--detach", action="store_true", help="return when ready; `quorate down` stops it")
    # What a detached start runs; PROGRAM is what runs `quorate` where it was started.
    parser.add_argument("--detached", metavar="PROGRAM", help=argparse.SUPPRESS)


def _number(given: str) -> int:
    """Read a whole number."""
    if not given.isascii() or not given.removeprefix("-").isdigit():
        raise argparse.ArgumentTypeError(f"{shown(given)} is no whole number")
    return int(given)


def run(arguments: argparse.Namespace) -> int:
    """Start, and in the foreground run until a signal."""
    if arguments.detach:
        return _detach(arguments)
    # What is given wrong is refused before anything is made.
    data_dir = _plan(arguments).data_dir
    try:
        OsDisk().make_dirs(str(data_dir))
        # The kernel frees it when this process has ended, which `quorate down` waits for.
        OsDisk().lock(str(data_dir))
    except DataDirInUseError as error:
        remedy = f"stop what runs there (quorate down --data-dir {data_dir}), or name another --data-dir"
        raise DataDirError(error.message, remedy) from error
    # Another start may have been the first since.
    layout = _plan(arguments)
    check_ports_free(layout)
    write(layout)
    return _supervise(layout, arguments)


def _supervise(layout: Layout, arguments: argparse.Namespace) -> int:
    from quorum.launcher.console import ConsoleProcess
    from quorum.launcher.supervisor import StartReport, Supervisor
    from quorum.launcher.trying import program_now, things_to_try

    log_format = () if arguments.log_format is None else ("--log-format", arguments.log_format)
    console = Console(sys.stdout)
    if arguments.log_format == JSON and not arguments.detached:
        _turn_to_json(console)
    _show(layout, console, arguments)
    port = layout.ports["console"]
    pages = ConsoleProcess(layout, port, log_format) if port else None
    supervisor = Supervisor(layout, console, pages, log_format)
    waiting = os.dup(sys.stdout.fileno()) if arguments.detached else None

    def ready(start: StartReport) -> None:
        console.say(f"{start.summary}: {start.addresses}", "yellow" if start.stories else "green")
        for story in start.stories:
            console.say(story)
        if start.console:
            console.say(start.console)
        console.say("three things to try, in another terminal:")
        for line in things_to_try(layout, arguments.detached or program_now(sys.argv)):
            console.say(f"  {line}")
        if waiting is not None and not _turn_to_log(layout, waiting):
            console.say("the command that started this was ended before it was ready: all is stopped")
            supervisor.stop()
        if arguments.log_format == JSON:
            # What the waiting command has shown was for people, the log is not.
            _turn_to_json(console)

    asyncio.run(supervisor.run(ready, deadline_s=READY_DEADLINE_S if arguments.detached else math.inf))
    return 0


def _turn_to_json(console: Console) -> None:
    set_up_logging(JSON, "up")
    console.use(json_line)


def _plan(arguments: argparse.Namespace) -> Layout:
    ports = {key: getattr(arguments, f"{key}_port") for key in DEFAULT_PORTS}
    layout = plan(arguments.data_dir.absolute(), arguments.nodes, arguments.brokers, ports)
    # The quorum needs nothing of the extra, and works without.
    return layout if _has_brokers() else replace(layout, children=layout.nodes)


def _has_brokers() -> bool:
    """Tell whether the extra that brokers need is installed."""
    return find_spec("kio") is not None


def _show(layout: Layout, console: Console, arguments: argparse.Namespace) -> None:
    rows = []
    for child in layout.children:
        inner = child.ports["peer" if child.kind == "node" else "broker"]
        rows.append([child.name, child.client_address, f"{HOST}:{inner}", admin_url(child), child.folder])
    header, *lines = table(["PROCESS", "CLIENTS", "PEERS", "ADMIN", "FOLDER"], rows)
    console.say(header, "bold")
    for line in lines:
        console.say(line)
    if layout.broker_count and arguments.brokers != 0 and not _has_brokers():
        console.say("no brokers: what they need is not installed (pip install 'quorate[brokers]')", "yellow")


def _detach(arguments: argparse.Namespace) -> int:
    from quorum.launcher.trying import program_now

    names = ("nodes", "brokers", "log_format", *(f"{key}_port" for key in DEFAULT_PORTS))
    given = {name.replace("_", "-"): getattr(arguments, name) for name in names}
    data_dir = str(arguments.data_dir.absolute())
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    child = subprocess.Popen(
        [*PROGRAM, "up", "--detached", program_now(sys.argv), "--data-dir", data_dir, *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=child_environment(),
        start_new_session=True,
    )
    assert child.stdout is not None
    last = ""
    try:
        with child.stdout as output:
            for line in output:
                last = line.decode(errors="replace")
                print(last, end="", flush=True)
        if last != _how_to_stop(data_dir):
            return child.wait()
    except BaseException:
        # Ctrl-C while it comes up: what was started must not stay
        child.terminate()
        child.wait()
        raise
    child.returncode = 0  # it lives on; the object must not warn that it does
    return 0


def _how_to_stop(data_dir: os.PathLike[str] | str) -> str:
    """The last line for the command that waits."""
    return f"quorate down --data-dir {data_dir} stops it\n"


def _turn_to_log(layout: Layout, waiting: int) -> bool:
    """End what the waiting command reads, and write to the log from now on; False if nobody waits."""
    try:
        os.write(waiting, _how_to_stop(layout.data_dir).encode())
    except BrokenPipeError:
        return False
    finally:
        os.close(waiting)
        with layout.log_file.open("ab") as log:
            for stream in (sys.stdout, sys.stderr):
                os.dup2(log.fileno(), stream.fileno())
    return True
