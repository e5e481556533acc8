"""`quorate shell` against real servers: one command, a script on standard input, a watch until Ctrl-C."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys

import pytest

from quorum.cli.shell import run
from quorum.client import BadVersionError, NoNodeError, NoParentError, NoServerError, NotEmptyError
from quorum.errors import QuorateError, UsageError
from tests.support.clients import hosts, root, system
from tests.support.nodes import REPOSITORY, server_environment

__all__ = ["hosts", "root", "system"]

Output = pytest.CaptureFixture[str]


def lines(capsys: Output) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_nodes_are_made_shown_changed_and_removed(hosts: str, root: str, capsys: Output) -> None:
    assert run(hosts, ["create", root, "ä b"]) == 0
    assert run(hosts, ["get", root]) == 0
    assert run(hosts, ["set", root, "c", "--version", "0"]) == 0
    assert lines(capsys) == [root, "ä b", f"{root} has version 1"]
    assert run(hosts, ["create", "-p", f"{root}/x/y/z"]) == 0
    assert run(hosts, ["create", "-s", f"{root}/x/s-"]) == 0
    assert run(hosts, ["ls", f"{root}/x"]) == 0
    assert lines(capsys) == [f"{root}/x/y/z", f"{root}/x/s-0000000001", "s-0000000001", "y"]
    assert run(hosts, ["delete", "-r", root]) == 0
    assert run(hosts, ["sync"]) == 0
    assert lines(capsys) == [f"{root} deleted, 5 nodes in all", "synced /"]
    with pytest.raises(NoNodeError, match=root):
        run(hosts, ["stat", root])


def test_results_as_json_are_one_object_per_line(hosts: str, root: str, capsys: Output) -> None:
    for words in (["create", root, "1"], ["get", root], ["stat", root], ["ls", root], ["delete", root]):
        assert run(hosts, words, as_json=True) == 0
    created, got, stat, listed, deleted = [json.loads(line) for line in lines(capsys)]
    assert created == {"path": root}
    assert (got["data"], got["stat"]) == ("1", stat["stat"])
    assert stat["stat"]["version"] == 0
    assert listed == {"path": root, "children": []}
    assert deleted == {"path": root, "deleted": 1}
    assert run(hosts, ["--json", "ls", "/"]) == 0
    assert "zookeeper" in json.loads(lines(capsys)[0])["children"]


def test_quotas_are_set_shown_and_removed(hosts: str, root: str, capsys: Output) -> None:
    run(hosts, ["create", "-p", f"{root}/child/deep"])
    assert run(hosts, ["setquota", "-n", "2", root]) == 0
    assert run(hosts, ["setquota", "-B", "9", root]) == 0
    assert run(hosts, ["listquota", root]) == 0
    assert lines(capsys)[-2:] == [
        "limits  count=2 bytes=-1 byteHardLimit=9 countHardLimit=-1",
        "used    count=3 bytes=0",
    ]
    with pytest.raises(UsageError, match=f"{root} has a quota"):
        run(hosts, ["setquota", "-n", "1", f"{root}/child/deep"])
    assert run(hosts, ["delquota", "-n", root]) == 0
    assert run(hosts, ["listquota", root], as_json=True) == 0
    assert json.loads(lines(capsys)[-1])["limits"]["count"] == -1
    assert run(hosts, ["delquota", root]) == 0
    assert run(hosts, ["setquota", "-N", "5", f"{root}/child"]) == 0
    with pytest.raises(UsageError, match=f"{root}/child has a quota"):
        run(hosts, ["setquota", "-n", "1", root])
    assert run(hosts, ["delquota", f"{root}/child"]) == 0
    with pytest.raises(NoNodeError) as caught:
        run(hosts, ["listquota", root])
    assert f"setquota -n NODES {root}" in str(caught.value.remedy)
    with pytest.raises(NoNodeError, match=root):
        run(hosts, ["setquota", "-n", "1", f"{root}/none"])
    with pytest.raises(UsageError, match=f"a limit is from 0 to {2**63 - 1}"):
        run(hosts, ["setquota", "-N", "9" * 20, root])
    with pytest.raises(UsageError, match="keeps no quota"):
        run(hosts, ["setquota", "-n", "1", "/zookeeper"])
    run(hosts, ["ls", "/zookeeper/quota"])
    assert lines(capsys)[-1:] != [root]


def test_failures_name_the_path_and_what_to_type(hosts: str, root: str) -> None:
    run(hosts, ["create", "-p", f"{root}/child"])
    failures: list[tuple[list[str], type[QuorateError], str]] = [
        (["get", f"{root}/none"], NoNodeError, f"ls {root}"),
        (["create", f"{root}/a/b"], NoParentError, "--parents"),
        (["set", root, "x", "-v", "7"], BadVersionError, f"stat {root}"),
        (["delete", root], NotEmptyError, "--recursive"),
        (["delete", "-r", "/"], UsageError, "one by one"),
        (["gte", root], UsageError, "get"),
    ]
    for words, expected, remedy in failures:
        with pytest.raises(expected) as caught:
            run(hosts, words)
        assert remedy in caught.value.remedy


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_clients_wrote_does_not_act_on_a_terminal(
    hosts: str, root: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, name = "\x1b[2J\n\ta\x9b", "\u202eb"
    run(hosts, ["create", root, data])
    run(hosts, ["create", f"{root}/{name}"])
    capsys.readouterr()
    for words in (["get", root], ["ls", root]):
        run(hosts, words)
    assert capsys.readouterr().out == f"{data}\n{name}\n", "a file or a pipe gets them as they are"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    for words in (["get", root], ["ls", root], ["get", root, "--json"]):
        run(hosts, words)
    shown, tabbed, listed, as_json = terminal.getvalue().splitlines()
    assert (shown, tabbed, listed) == ("\\x1b[2J", "\ta\\x9b", "\\u202eb")
    assert as_json.isprintable()
    assert json.loads(as_json)["data"] == data


def test_a_script_keeps_its_session_and_tells_of_failures(
    hosts: str, root: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        f"create -e {root} 'a b'\n\nget {root}\nget '{root}\nget {root}/none\nls {root} --json\nquit\nls /\n"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(script))
    assert run(hosts, []) == 1
    output = capsys.readouterr()
    assert output.out.splitlines() == [root, "a b", json.dumps({"children": [], "path": root})]
    assert "No closing quotation" in output.err
    assert f"error: {root}/none: there is no such node" in output.err
    assert f"remedy: see what is there: ls {root}" in output.err
    # The ephemeral node went with the session.
    with pytest.raises(NoNodeError):
        run(hosts, ["get", root])


def test_a_script_without_failures_is_good(hosts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("sync\nhelp\n"))
    assert run(hosts, []) == 0


def test_help_needs_no_server(capsys: Output) -> None:
    assert run("127.0.0.1:1", ["help"]) == 0
    assert run("127.0.0.1:1", ["watch", "--help"]) == 0
    assert "usage: watch" in capsys.readouterr().out


def test_unusable_addresses_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum.cli.shell.engine.CONNECT_PATIENCE_MS", 300.0)
    with pytest.raises(UsageError, match=r"127[.]0[.]0[.]1:x"):
        run("127.0.0.1:x", ["ls"])
    with pytest.raises(NoServerError, match=r"300 ms; last attempt: 127[.]0[.]0[.]1:1: cannot connect"):
        run("127.0.0.1:1", ["ls"])


def start_watch(hosts: str, *words: str) -> subprocess.Popen[str]:
    # Who runs the tests in the background of a script has them ignore SIGINT, and children inherit that.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from quorum.cli.shell import run; sys.exit(run({hosts!r}, ['watch', *sys.argv[1:]]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=server_environment(),
    )


def test_a_watch_follows_a_node_from_creation_to_deletion(hosts: str, root: str) -> None:
    with start_watch(hosts, "-c", "-n", "4", root) as watch:
        assert watch.stdout is not None
        assert watch.stdout.readline() == f"watching {root}, which does not exist yet\n"
        seen = []
        for words in (["create", root], ["set", root, "1"], ["create", f"{root}/child"]):
            run(hosts, words)
            seen.append(watch.stdout.readline())
        run(hosts, ["delete", f"{root}/child"])
        seen.append(watch.stdout.readline())
        assert [line.split(" (")[0] for line in seen] == [
            f"{root} created",
            f"{root} data changed",
            f"{root} children changed",
            f"{root} children changed",
        ]
        assert "has version 1, 1 children" in seen[2]
        assert watch.wait(20) == 0


def test_ctrl_c_ends_a_watch_quietly(hosts: str) -> None:
    with start_watch(hosts, "--json", "/") as watch:
        assert watch.stdout is not None
        assert json.loads(watch.stdout.readline())["watching"] == "/"
        watch.send_signal(signal.SIGINT)
        assert watch.wait(20) == 130
