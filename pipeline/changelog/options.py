"""The options of `format("quorate-changelog")`: what they mean, and which values are refused.

Decides from the options alone; whether the history has what they ask for is reading.py's to find out. Pure.
Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pipeline.dialling import TLS_OPTIONS, tls_files
from pipeline.errors import OptionError
from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.config.tls import TlsSection

ADMIN: Final = "quorate.admin"
TOKEN_FILE: Final = "quorate.tokenFile"  # noqa: S105 - the name of an option
STARTING_ZXID: Final = "startingZxid"
ENDING_ZXID: Final = "endingZxid"
BOOTSTRAP: Final = "bootstrap"
FAIL_ON_DATA_LOSS: Final = "failOnDataLoss"
TRANSACTIONS_MAX: Final = "maxTransactionsPerTrigger"
BYTES_MAX: Final = "maxBytesPerTrigger"
_NAMES: Final = (
    *(ADMIN, TOKEN_FILE, STARTING_ZXID, ENDING_ZXID, BOOTSTRAP, FAIL_ON_DATA_LOSS),
    *(TRANSACTIONS_MAX, BYTES_MAX, *TLS_OPTIONS),
)
_URL: Final = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[\w.-]+):([0-9]{1,5})/?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True)
class ChangelogOptions:
    """What a query asks for.

    Attributes:
        nodes: (host, port) of the admin ports, in the order in which they are tried.
        token: that they ask for; empty: none.
        starting_zxid: the first transaction, inclusive; None: the first that is retained.
        ending_zxid: the last one of a batch, inclusive; None: the newest.
        bootstrap: whether the tree before the first transaction comes first, as rows of op r.
        fail_on_data_loss: whether history that was dropped ends the query.
        transactions_max: of a micro-batch; None: no bound.
        bytes_max: of a micro-batch, as msgpack, unless one transaction is larger; None: no bound.
        tls: the files for TLS with the admin ports; None: without.
    """

    nodes: tuple[tuple[str, int], ...]
    token: str = field(repr=False)
    starting_zxid: int | None
    ending_zxid: int | None
    bootstrap: bool
    fail_on_data_loss: bool
    transactions_max: int | None
    bytes_max: int | None
    tls: TlsSection | None


def read_options(given: Mapping[str, str]) -> ChangelogOptions:
    """Check options.

    Args:
        given: by name, whatever the case of its letters.
    """
    values = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in _NAMES}
    for name, value in values.items():
        if name not in known:
            raise OptionError(name, value, "is unknown", f"give only {', '.join(_NAMES)}")
    starting, ending = _number(values, STARTING_ZXID), _number(values, ENDING_ZXID)
    if starting is not None and ending is not None and ending < starting:
        problem, remedy = f"is before {STARTING_ZXID} = {starting}", f"give {starting} or more"
        raise OptionError(ENDING_ZXID, ending, problem, remedy)
    files = tls_files(values, TLS_OPTIONS)
    return ChangelogOptions(
        nodes=_nodes(values.get(ADMIN.lower(), ",".join(DEFAULT_ADMIN_URLS)), is_encrypted=files is not None),
        token=_token(values),
        starting_zxid=starting,
        ending_zxid=ending,
        bootstrap=_boolean(values, BOOTSTRAP, default=starting is None),
        fail_on_data_loss=_boolean(values, FAIL_ON_DATA_LOSS, default=True),
        transactions_max=_number(values, TRANSACTIONS_MAX, least=1),
        bytes_max=_number(values, BYTES_MAX, least=1),
        tls=files,
    )


def _nodes(text: str, *, is_encrypted: bool) -> tuple[tuple[str, int], ...]:
    nodes = []
    for url in text.split(","):
        found = _URL.fullmatch(url.strip())
        if found is None or not 0 < int(found[2]) < 1 << 16:
            raise OptionError(
                ADMIN, text, f"{url.strip()!r} is not http://host:port", "give URLs, separated by commas"
            )
        if url.strip().startswith("https") != is_encrypted:
            problem = f"{url.strip()!r} is {'not by TLS' if is_encrypted else 'by TLS'}"
            remedy = f"give https:// and {TLS_OPTIONS[0]}, who signs the nodes, or neither"
            raise OptionError(ADMIN, text, problem, remedy)
        nodes.append((found[1].strip("[]"), int(found[2])))
    return tuple(dict.fromkeys(nodes))


def _token(values: Mapping[str, str]) -> str:
    path = values.get(TOKEN_FILE.lower())
    if path is None:
        return ""
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(TOKEN_FILE, path, f"cannot be read: {error}", "name a file with a token") from error
    if not token or not token.isprintable() or " " in token:
        raise OptionError(TOKEN_FILE, path, "holds no token", "name a file with one token in it")
    return token


def _number(values: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = values.get(name.lower())
    if text is None:
        return None
    if not _NUMBER.fullmatch(text.strip()) or int(text) < least:
        raise OptionError(name, text, "is not such a number", f"give a whole number from {least} on")
    return int(text)


def _boolean(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in _BOOLEANS:
        raise OptionError(name, text, "is neither true nor false", f"give {str(default).lower()}")
    return _BOOLEANS[text.strip().lower()]
