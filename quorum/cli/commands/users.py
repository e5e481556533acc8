"""`quorate users`: who may prove what it is to brokers and to nodes, and by which password.

Writes Kafka's own znodes, so it works before any broker runs; of nodes' users it makes lines for a file.
Passwords come from standard input and are kept nowhere. What it writes is for the brokers alone from the
beginning, where there was ever one; else the first broker makes it so. Where the tree is protected, and to
read what is there, the brokers' secret is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from quorum.cli.commands.shell import DEFAULT_HOSTS
from quorum.cli.commands.status import add_sasl_options, add_tls_options
from quorum.errors import UsageError, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quorum.client import Client

HELP = "set, list and delete the users of Kafka clients; make a line of the nodes' users file"
DESCRIPTION = """\
Keep the users by whom Kafka clients prove who they are, in the quorum. A password comes from standard
input. What is set replaces the passwords that the user had, and leaves its quotas; so does delete. Brokers
know it at once.

digest prints the line of a user for the file that security.sasl_users_file of node.toml names. The file has
mode 0600; nodes read it again within a minute, or on SIGHUP. Who reads a line can prove to be that user, as
with the password."""
EXAMPLES = """\
examples:
  quorate users set alice < alice.password
  quorate users set alice --mechanism SCRAM-SHA-512 --hosts 10.0.0.1:2181 --peer-secret data/peer.secret
  quorate users list --json
  quorate users delete alice
  quorate users digest alice < password.txt >> users.digest
"""
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_TIMEOUT_MS = 30_000.0
#: what every client of ZooKeeper hashes alike
_DIGEST_NAME = re.compile(r"[!-9;-~]{1,255}")
_DIGEST_PASSWORD = re.compile(r"[ -~]{1,1024}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare actions and options."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--hosts",
        metavar="H:P,…",
        default=DEFAULT_HOSTS,
        help=f"client ports of the quorum (default: {DEFAULT_HOSTS})",
    )
    add_tls_options(shared)
    add_sasl_options(shared)
    shared.add_argument(
        "--peer-secret",
        metavar="FILE",
        type=Path,
        help="the brokers' peer secret, to read what is theirs",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    rows = (
        ("set", "set a user's password, which is read from standard input", _set),
        ("list", "list users with their mechanisms", _list),
        ("delete", "delete a user; its sessions last until they prove themselves again", _delete),
    )
    for name, text, act in rows:
        action = actions.add_parser(name, allow_abbrev=False, parents=[shared], help=text, description=text)
        action.set_defaults(act=act)
        if name == "list":
            action.add_argument("--json", action="store_true", help="print JSON")
            continue
        action.add_argument("user", metavar="NAME")
        if name == "set":
            action.add_argument(
                "--mechanism",
                action="append",
                choices=_MECHANISMS,
                help=f"for which the password counts, may be repeated (default: {' and '.join(_MECHANISMS)})",
            )
            action.add_argument(
                "--iterations", type=int, default=8192, metavar="N", help="of the hash (default: 8192)"
            )
    digest = actions.add_parser("digest", help="print the line of a user of nodes", allow_abbrev=False)
    digest.add_argument("user", metavar="NAME", help="letters, digits and signs but the colon")


def run(arguments: argparse.Namespace) -> int:
    """Change or show users; returns the exit code."""
    if arguments.action == "digest":
        return _digest(arguments.user)
    from quorum.config.logins import PROVING
    from quorum.platform.tls import DIALLING

    if arguments.action != "list" and (not arguments.user or arguments.user in (".", "..")):
        raise UsageError(f"{arguments.user!r} can be no user", "give another name")

    async def ask() -> int:
        from quorum.client import Client, NoAuthError

        try:
            client = Client(arguments.hosts, tls=DIALLING.get(), sasl=PROVING.get())
        except ValueError as error:
            raise UsageError(str(error), "write --hosts host:port,host:port") from error
        await client.start(_TIMEOUT_MS)
        try:
            await _prove(client, arguments.peer_secret)
            act: Callable[[Client, argparse.Namespace], Awaitable[int]] = arguments.act
            return await act(client, arguments)
        except NoAuthError as error:
            remedy = "give --peer-secret FILE, the secret of these brokers"
            raise UsageError("the users are for the brokers alone", remedy) from error
        finally:
            await client.close()

    return asyncio.run(ask())


async def _prove(client: Client, file: Path | None) -> None:
    """Prove the secret, if it is given; what is created is for the brokers alone, if there was ever one."""
    from quorum.config.node import read_peer_secrets
    from quorum.metadata.paths import CLUSTER_ID
    from quorum.metadata.protection import prove_secrets
    from quorum.metadata.reading import read_node
    from quorum.metadata.records import decode_cluster_id
    from quorum.metadata.rotation import brokers_access
    from quorum.metadata.trust import Trust

    if file is None:
        client.default_acl = await brokers_access(client)
        return
    node = await read_node(client, CLUSTER_ID)
    if node is None:
        return
    trust = Trust(read_peer_secrets(file), decode_cluster_id(node.data))
    await prove_secrets(client, trust)
    client.default_acl = trust.own_access()


async def _set(client: Client, arguments: argparse.Namespace) -> int:
    from secrets import token_bytes

    from quorum.client import AccessEntry, NodeExistsError
    from quorum.metadata.paths import CONFIG, CONFIG_USERS
    from quorum.metadata.rewriting import rewrite
    from quorum.metadata.user_records import (
        ITERATIONS_MAX,
        ITERATIONS_MIN,
        SALT_BYTES,
        SCRAM_MECHANISMS,
        ScramCredential,
        user_path,
        with_credentials,
    )

    count = arguments.iterations
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        remedy = f"give {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise UsageError(f"--iterations {count}: that many are not taken", remedy)
    password = _password()
    path = user_path(arguments.user)
    credentials = {
        name: ScramCredential.of_password(
            SCRAM_MECHANISMS[name], password, token_bytes(SALT_BYTES), count
        ).encode()
        for name in arguments.mechanism or _MECHANISMS
    }
    for folder in (CONFIG, CONFIG_USERS):
        if await client.exists(folder) is None:
            # The folder lets everybody list users and add one, until a broker decides.
            with contextlib.suppress(NodeExistsError):
                await client.create(folder, b"", acl=[AccessEntry(31, "world", "anyone")])

    # Who may not read it might put another one in its place, and would lose what else is kept there.
    await rewrite(
        client, path, lambda data: with_credentials(path, data, credentials), f"user {arguments.user}"
    )
    print(f"{arguments.user}: {', '.join(credentials)}")
    return 0


def _digest(name: str) -> int:
    from quorum.config.sasl_users import user_line

    if not _DIGEST_NAME.fullmatch(name):
        remedy = "give 1 to 255 letters, digits and signs of ASCII, without colon and space"
        raise UsageError(f"{name!r} is no name of a user", remedy)
    password = _password()
    if not _DIGEST_PASSWORD.fullmatch(password):
        problem = "the password on standard input is too long, or not of ASCII"
        raise UsageError(
            problem, "give one line of 1 to 1024 printable characters, which all clients hash alike"
        )
    print(user_line(name, password))
    return 0


def _password() -> str:
    """Read a password: asked for on a terminal, else the first line of standard input."""
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError("the password is empty", "give it on standard input")
    return password


async def _list(client: Client, arguments: argparse.Namespace) -> int:
    from quorum.client import NoAuthError, NoNodeError
    from quorum.metadata.errors import MetadataDecodeError
    from quorum.metadata.paths import CONFIG_USERS
    from quorum.metadata.user_records import UserRecord, credentials_of, user_at

    try:
        names = await client.get_children(CONFIG_USERS)
    except NoNodeError:
        names = []
    rows: list[dict[str, object]] = []
    code = 0
    for path in (f"{CONFIG_USERS}/{name}" for name in sorted(names)):
        user = user_at(path)
        if user is None:
            continue
        try:
            data, _ = await client.get(path)
        except NoAuthError:
            # Names are no secret where the tree is not protected; what is kept of passwords is.
            rows.append({"user": user, "mechanisms": None, "iterations": None})
            continue
        except NoNodeError:
            continue
        try:
            found = credentials_of(path, UserRecord.decode(path, data).settings)
        except MetadataDecodeError as error:
            print(printable(f"{user} is left out: {error.message}; {error.remedy}"), file=sys.stderr)
            code = 1
            continue
        if found:
            iterations = min(each.iterations for each in found.values())
            mechanisms = [each.text for each in found]
            rows.append({"user": user, "mechanisms": mechanisms, "iterations": iterations})
    if arguments.json:
        print(json.dumps(rows))
        return code
    for row in rows:
        told = row["mechanisms"]
        print(f"{printable(str(row['user']))}  {', '.join(told) if isinstance(told, list) else '?'}")
    return code


async def _delete(client: Client, arguments: argparse.Namespace) -> int:
    from quorum.client import BadVersionError, NotEmptyError
    from quorum.metadata.reading import read_node
    from quorum.metadata.rewriting import rewrite
    from quorum.metadata.user_records import UserRecord, credentials_of, user_path, with_credentials

    path = user_path(arguments.user)
    node = await read_node(client, path)
    settings = {} if node is None else UserRecord.decode(path, node.data).settings
    if node is None or not credentials_of(path, settings):
        remedy = "look with `quorate users list`"
        raise UsageError(f"there is no user {arguments.user!r}", remedy)
    # What is left are quotas: of the user in the value, of its clients below.
    await rewrite(client, path, lambda data: with_credentials(path, data, {}), f"user {arguments.user}")
    after = await read_node(client, path)
    if after is not None and not UserRecord.decode(path, after.data).settings:
        with contextlib.suppress(NotEmptyError, BadVersionError):
            await client.delete(path, after.stat.version)
    print(f"{arguments.user}: deleted")
    return 0
