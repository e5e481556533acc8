"""Words of the shell: what they mean, and refusals that say what to write instead."""

from __future__ import annotations

import json

import pytest

from quorum.cli.shell import render
from quorum.cli.shell.commands import (
    SUMMARIES,
    Command,
    Create,
    Delete,
    DelQuota,
    Get,
    Help,
    ListQuota,
    Ls,
    Quit,
    Set,
    SetQuota,
    ShowStat,
    Sync,
    Watch,
    help_text,
    parse,
    split_line,
)
from quorum.cli.shell.execute import remedy_for
from quorum.client import EventType, Stat, WatchEvent
from quorum.client.errors import server_error
from quorum.errors import UsageError

STAT = Stat(
    czxid=1,
    mzxid=2,
    pzxid=3,
    ctime_ms=0,
    mtime_ms=2**62,
    version=4,
    cversion=5,
    aversion=6,
    ephemeral_owner=0x1F,
    data_length=8,
    children_count=9,
)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("ls", Ls("/")),
        ("ls /a/", Ls("/a")),
        ("get /a", Get("/a", False)),
        ("get -s /a", Get("/a", True)),
        ("get /a --stat", Get("/a", True)),
        ("set /a 'b c'", Set("/a", b"b c", -1)),
        ("set /a -5 --version 3", Set("/a", b"-5", 3)),
        ("set /a -- -x", Set("/a", b"-x", -1)),
        ("create /a", Create("/a", b"", False, False, False)),
        ("create -esp /a ü", Create("/a", "ü".encode(), True, True, True)),
        ("create -s /q/", Create("/q/", b"", False, True, False)),
        ("create /q/", Create("/q", b"", False, False, False)),
        ("delete /a", Delete("/a", -1, False)),
        ("rm -r /a -v 2", Delete("/a", 2, True)),
        ("stat /", ShowStat("/")),
        ("watch /a", Watch("/a", False, None)),
        ("watch -c -n 2 /a", Watch("/a", True, 2)),
        ("sync", Sync("/")),
        ("setquota -n 5 -B 100 /a", SetQuota("/a", {"count": 5, "byteHardLimit": 100})),
        ("setquota -N 0 -b 1 /a/", SetQuota("/a", {"bytes": 1, "countHardLimit": 0})),
        ("listquota /a", ListQuota("/a")),
        ("delquota /a", DelQuota("/a", ())),
        ("delquota -nB /a", DelQuota("/a", ("count", "byteHardLimit"))),
        ("help", Help(None)),
        ("help get", Help("get")),
        ("get --help", Help("get")),
        ("create -h", Help("create")),
        ("quit", Quit()),
        ("exit", Quit()),
    ],
)
def test_lines_mean_commands(line: str, command: Command) -> None:
    assert parse(split_line(line)) == (command, False)


@pytest.mark.parametrize("line", ["--json ls /", "ls --json /", "ls / --json"])
def test_json_may_stand_anywhere(line: str) -> None:
    assert parse(split_line(line)) == (Ls("/"), True)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("", "no command"),
        ("--json", "no command"),
        ("lss /", "'lss'"),
        ("get", "PATH"),
        ("get a", "write /a"),
        ("ls / /b", "/b"),
        ("set /a", "DATA"),
        ("set /a x -v -2", "-2"),
        ("set /a x -v one", "one"),
        ("delete /a --ver 3", "--ver"),
        ("watch /a -n 0", "0"),
        ("watch -n", "expected one argument"),
        ("setquota /a", "no limit"),
        ("setquota -n -1 /a", "-n -1"),
        ("setquota -b many /a", "many"),
        ("listquota", "PATH"),
    ],
)
def test_wrong_lines_are_refused_with_a_remedy(line: str, named: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(split_line(line))
    assert named in str(caught.value)
    assert caught.value.remedy


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(UsageError, match="quot"):
        split_line("get '/a")


def test_help_knows_every_command() -> None:
    overview = help_text(None)
    for name, summary in SUMMARIES.items():
        assert f"{name} " in overview
        assert summary in overview
        assert f"usage: {name}" in help_text(name)
    assert "usage: delete" in help_text("rm")
    with pytest.raises(UsageError, match="nothing"):
        help_text("nothing")


def test_bytes_of_the_command_line_are_kept() -> None:
    raw = b"\xff\xfe"
    parsed = parse(["set", "/a", raw.decode("utf-8", "surrogateescape")])
    assert parsed.command == Set("/a", raw, -1)


@pytest.mark.parametrize(
    ("output", "text", "json_text"),
    [
        (render.listing("/a", ["b", "a"]), "a\nb", '{"children": ["a", "b"], "path": "/a"}'),
        (render.created("/ü"), "/ü", '{"path": "/ü"}'),
        (render.deleted("/a", 1), "/a deleted", '{"deleted": 1, "path": "/a"}'),
        (render.deleted("/a", 3), "/a deleted, 3 nodes in all", '{"deleted": 3, "path": "/a"}'),
        (
            render.limited("/a", {"count": 5}, {"count": 1, "bytes": 2}),
            "limits  count=5\nused    count=1 bytes=2",
            '{"limits": {"count": 5}, "path": "/a", "used": {"bytes": 2, "count": 1}}',
        ),
        (
            render.unlimited("/a", ["bytes"]),
            "/a has no bytes any more",
            '{"deleted": ["bytes"], "path": "/a"}',
        ),
        (render.synced("/a"), "synced /a", '{"synced": "/a"}'),
        (
            render.watching("/a", None),
            "watching /a, which does not exist yet",
            '{"stat": null, "watching": "/a"}',
        ),
        (
            render.changed(WatchEvent(EventType.NODE_DELETED, "/a", 31), None),
            "/a deleted (zxid 0x1f)",
            '{"event": "deleted", "path": "/a", "stat": null, "zxid": 31}',
        ),
    ],
)
def test_results_as_text_and_as_json(output: render.Output, text: str, json_text: str) -> None:
    assert output.text == text
    assert render.as_json(output) == json_text


def test_data_is_never_lost_silently() -> None:
    assert '"data_base64": "//4="' in render.as_json(render.content("/a", b"\xff\xfe", STAT, with_stat=False))
    assert render.content("/a", b"\xff", STAT, with_stat=False).text == "\\xff"
    assert '"data": null' in render.as_json(render.content("/a", None, STAT, with_stat=False))
    assert '"data": ""' in render.as_json(render.content("/a", b"", STAT, with_stat=False))


def test_json_holds_nothing_that_acts_on_a_terminal() -> None:
    names = ["\x1b[2J", "\x7f\x9b", "\u202e\u2028", "\U000e0001", "ü😀"]
    text = render.as_json(render.listing("/a", names))
    assert text.isprintable()
    assert "ü😀" in text
    assert json.loads(text)["children"] == sorted(names)


def test_a_stat_is_shown_line_by_line_whatever_its_times() -> None:
    lines = render.described("/a", STAT).text.splitlines()
    assert "version         4" in lines
    assert "ephemeral owner 0x1f" in lines
    assert "ctime           1970-01-01 00:00:00.000 UTC" in lines
    assert f"mtime           {2**62} ms since 1970" in lines
    assert len(lines) == len(STAT)


@pytest.mark.parametrize(
    ("code", "creating", "typed"),
    [
        (-101, True, "create --parents"),
        (-101, False, "ls /a"),
        (-110, False, "set /a/b"),
        (-103, False, "stat /a/b"),
        (-111, False, "--recursive"),
        (-108, False, "/a"),
        (-8, False, "control characters"),
    ],
)
def test_errors_get_the_remedy_that_can_be_typed(code: int, creating: bool, typed: str) -> None:
    assert typed in remedy_for(server_error(code, "/a/b", creating=creating))
