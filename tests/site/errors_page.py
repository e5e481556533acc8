"""docs/reference/errors.md: codes that nodes and brokers answer with, and the errors of starts and commands.

Numbers, and whether something is definite and retriable, come from the code; error_words.py says when a
code is answered. Which codes are answered is read from the sources of the servers.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Final

import broker
import controller
import quorum
from controller.wire.codes import ErrorCode
from quorum.core import codes
from quorum.errors import CODES, ConfigError, QuorateError, UsageError
from tests.site.error_words import KAFKA, ZOOKEEPER
from tests.site.tables import NOTE, anchored, cell, joined, table
from tests.tidy.rules import REPOSITORY

#: ZooKeeper's code that a client gives itself.
_CONNECTION_LOSS: Final = -4
#: Where brokers make their answers, and what of it only asks others.
_SERVERS: Final = ("broker", "controller")
_ASKING: Final = ("broker/client/", "broker/console/", "broker/commands/", "controller/wire/codes.py")

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


def _zookeeper() -> Iterator[str]:
    yield "## Codes of ZooKeeper's protocol"
    yield (
        "A client's library names them in its own way: kazoo has `NoNodeError`, "
        "Java `KeeperException.NoNodeException`."
    )
    wanted = answered_by_nodes() | {_CONNECTION_LOSS}
    if wanted != set(ZOOKEEPER):
        raise ValueError(f"tests/site/error_words.py differs in {sorted(wanted ^ set(ZOOKEEPER))}")
    rows = [
        (
            anchored(f"zookeeper.{row.name}", row.name),
            str(row.code),
            _yes(row.definite),
            _yes(row.retriable),
            *map(cell, ZOOKEEPER[row.code]),
        )
        for row in sorted(CODES.values(), reverse=True)
        if row.code in wanted
    ]
    yield table(("name", "code", "definite", "retriable", "when", "what to do"), rows)


def _kafka() -> Iterator[str]:
    yield "## Codes of Kafka's protocol"
    wanted = answered_by_brokers()
    if wanted != set(KAFKA):
        raise ValueError(f"tests/site/error_words.py differs in {sorted(wanted ^ set(KAFKA))}")
    rows = [
        (
            anchored(f"kafka.{code.name}", code.name),
            str(int(code)),
            _yes(code.definite),
            _yes(code.retriable),
            *map(cell, KAFKA[code.name]),
        )
        for code in ErrorCode
        if code.name in wanted
    ]
    yield table(("name", "code", "definite", "retriable", "when", "what to do"), rows)


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
    yield f"`fault` says who has to change something, as the operator after `{ConfigError.__name__}`."
    rows = []
    for each in _classes():
        first = inspect.cleandoc(each.__doc__ or "").partition("\n\n")[0]
        rows.append(
            (
                anchored(f"class.{each.__name__}", each.__name__),
                each.fault.value,
                _yes(each.definite),
                _yes(each.retriable),
                cell(first),
            )
        )
    yield table(("class", "fault", "definite", "retriable", "what it says"), rows)


def page() -> str:
    """Return the page as the code is."""
    return joined([_HEAD, *_zookeeper(), *_kafka(), *_errors()])
