"""docs/reference/errors.md: codes that nodes and brokers answer with, and the errors of starts and commands.

Numbers, and whether something is definite and retriable, come from the code; error_words.py says when a
code is answered. Which codes are answered is read from the sources of the servers.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import broker
import controller
import quorum
from controller.wire.codes import ErrorCode
from quorum.core import codes
from quorum.errors import CODES, CodeRow, ConfigError, ConfigProblem, Fault, QuorateError, UsageError
from tests.site.error_words import KAFKA, ZOOKEEPER
from tests.site.raised import VALUE, raised
from tests.site.tables import NOTE, anchored, cell, code, joined, table
from tests.tidy.rules import REPOSITORY

#: ZooKeeper's code that a client gives itself.
_CONNECTION_LOSS: Final = -4
#: Where brokers make their answers, and what of it only asks others.
_SERVERS: Final = ("broker", "controller")
_ASKING: Final = ("broker/client/", "broker/console/", "broker/commands/", "controller/wire/codes.py")

#: {who has to change something: the heading}
_FAULTS: Final = {
    Fault.OPERATOR: "What an operator mends",
    Fault.CLIENT: "What a client mends",
    Fault.NETWORK: "What the network did",
    Fault.NODE: "What a node or broker could not do",
    Fault.PEER: "What the other side of a connection did",
}

#: What an append may meet after it was stored; other requests had no effect then.
AFTER_APPENDS: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER,))

_HEAD: Final = f"""# Errors

What nodes, brokers and commands answer, and what to do about it. {NOTE}

- *definite*: the request has had no effect, and never will. After an error that is not definite, look before
  you repeat a write.
- *retriable*: the same request may succeed later, on this server or another one.
"""


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def answered_by_nodes() -> set[int]:
    """Return the codes that nodes answer with, without that of success."""
    every = {name: value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int)}
    errors = list(every)[: list(every).index("OP_ERROR")]
    return {every[name] for name in errors if every[name] < 0}


def answered_by_brokers() -> set[str]:
    """Return the names of Kafka's codes that the sources of brokers name, without that of success."""
    found: set[str] = set()
    for folder in _SERVERS:
        for file in (REPOSITORY / folder).rglob("*.py"):
            if not file.relative_to(REPOSITORY).as_posix().startswith(_ASKING):
                found.update(re.findall(r"\bErrorCode\.([A-Z_]+)\b", file.read_text("utf-8")))
    return (found & set(ErrorCode.__members__)) - {"NONE"}


def _codes(
    protocol: str, rows: Mapping[Any, tuple[int, CodeRow | ErrorCode]], words: Mapping[Any, tuple[str, str]]
) -> str:
    """Return the table of codes that are answered, {as words name it: (number, code)}."""
    if different := rows.keys() ^ words.keys():
        raise ValueError(f"tests/site/error_words.py differs in {different}")
    return table(
        ("name", "code", "definite", "retriable", "when", "what to do"),
        [
            (
                anchored(f"{protocol}.{row.name}", row.name),
                str(number),
                "yes, but not of an append" if row in AFTER_APPENDS else _yes(row.definite),
                _yes(row.retriable),
                *map(cell, words[key]),
            )
            for key, (number, row) in rows.items()
        ],
    )


def _zookeeper() -> Iterator[str]:
    yield "## Codes of ZooKeeper's protocol"
    yield (
        "A client's library names them in its own way: kazoo has `NoNodeError`, "
        "Java `KeeperException.NoNodeException`."
    )
    answered = sorted(answered_by_nodes() | {_CONNECTION_LOSS}, reverse=True)
    yield _codes("zookeeper", {code: (code, CODES[code]) for code in answered}, ZOOKEEPER)


def _kafka() -> Iterator[str]:
    yield "## Codes of Kafka's protocol"
    answered = sorted(map(ErrorCode.__getitem__, answered_by_brokers()))
    yield _codes("kafka", {code.name: (code.value, code) for code in answered}, KAFKA)


def _classes() -> list[type[QuorateError]]:
    """Return every class below QuorateError, by name."""
    for package in (quorum, broker, controller):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            _loaded(module.name)
    found, left = set[type[QuorateError]](), [QuorateError]
    while left:
        for each in left.pop().__subclasses__():
            if each not in found and each.__module__.partition(".")[0] in ("quorum", "broker", "controller"):
                found.add(each)
                left.append(each)
    return sorted(
        (each for each in found if not each.__name__.startswith("_")), key=lambda each: each.__name__
    )


def _loaded(name: str) -> ModuleType | None:
    return None if name.endswith("__main__") else importlib.import_module(name)


def _errors() -> Iterator[str]:
    yield "## Errors of starts, commands and libraries"
    yield (
        "A process that does not start, or a command that fails, says two lines on standard error. "
        "`error: …` names the thing and its value, and `remedy: …` says what to do. "
        "A configuration has such a pair for every problem at once."
    )
    yield (
        "Programs that use `quorum.client` or `broker.client` catch these classes. "
        "An error has the attributes `message`, `remedy`, `definite` and `retriable`. "
        f"The exit code of a command is 2 after `{UsageError.__name__}`, else 1."
    )
    for fault, words in _FAULTS.items():
        yield f"### {words}"
        yield table(
            ("class", "definite", "retriable", "what it says"),
            [
                (
                    anchored(f"class.{each.__name__}", each.__name__),
                    _yes(each.definite),
                    _yes(each.retriable),
                    cell(inspect.cleandoc(each.__doc__ or "").partition("\n\n")[0]),
                )
                for each in _classes()
                if each.fault is fault
            ],
        )


def _starts() -> Iterator[str]:
    """Yield what the sources say of problems with settings, and of commands."""
    kinds = {
        each.__name__
        for each in _classes()
        # One that makes its message itself is given parts of it; those of the wire are no operator's to read.
        if each.fault is Fault.OPERATOR
        and (each is ConfigError or "__init__" not in vars(each))
        and not each.__module__.startswith("controller.wire")
    }
    calls = list(raised(kinds | {ConfigProblem.__name__}))
    settings, commands, others = dict[tuple[str, ...], None](), dict[tuple[str, ...], None](), []
    for call in calls:
        if call.kind in (ConfigProblem.__name__, ConfigError.__name__):
            # In each: the setting, its value, the problem, the remedy.
            if len(call.texts) == 4 and call.texts[2].strip(f"{VALUE} ") and call.texts[3]:
                setting = code(call.texts[0]) if call.texts[0].strip(f"{VALUE}.") else VALUE
                settings[setting, cell(call.texts[2]), cell(call.texts[3])] = None
        elif len(call.texts) == 2 and call.texts[0].strip(f"{VALUE}: ") and call.texts[1]:
            row = cell(call.texts[0]), cell(call.texts[1])
            if call.kind == UsageError.__name__:
                commands[row] = None
            else:
                others.append((f"[`{call.kind}`](#class.{call.kind})", *row))
    yield "## What a start refuses"
    yield (
        f"`{VALUE}` stands for a value. A start names each problem of its settings, "
        "and `quorate doctor --config FILE` says the same without a start."
    )
    yield table(("setting", "what is wrong", "remedy"), sorted(settings))
    yield "## What nodes and commands say to an operator"
    yield "The message names the file, the address or the cluster, and says why."
    yield table(("error", "message", "remedy"), sorted(dict.fromkeys(others)))
    yield "## What commands do not take"
    yield f"After these (`{UsageError.__name__}`) the exit code is 2, and nothing was done."
    yield table(("message", "remedy"), sorted(commands))


def page() -> str:
    """Return the page as the code is."""
    return joined([_HEAD, *_zookeeper(), *_kafka(), *_errors(), *_starts()])
