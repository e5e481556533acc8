"""The command line without any server: usage, help, exit codes, errors in two lines, output."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quorum import __version__
from quorum.cli.commands.status import describe
from quorum.cli.main import build_parser, main
from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.launcher.layout import DEFAULT_PORTS
from quorum.platform.terminal import Console, styled, table

STATUS: dict[str, Any] = {
    "node_id": 1,
    "cluster": "local",
    "cluster_id": "c0ffee",
    "role": "leader",
    "term": 7,
    "leader_id": 1,
    "commit_index": 120,
    "applied_index": 119,
    "zxid": 33,
    "state_digest": "ab12",
    "sessions": 4,
    "members": [
        {"node_id": 10, "address": "127.0.0.1:2290", "role": "learner", "voter": False, "match_index": 100},
        {
            "node_id": 2,
            "address": "127.0.0.1:2282",
            "role": "unreachable",
            "voter": True,
            "match_index": None,
        },
        {"node_id": 1, "address": "127.0.0.1:2281", "role": "leader", "voter": True, "match_index": 121},
    ],
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["statuss"], "statuss"),
        (["up", "--node", "3"], "--node"),
        (["up", "--nodes", "three"], "three"),
        (["up", "--nodes", "0"], "--nodes 0"),
        (["up", "--nodes", "10"], "--nodes 10"),
        (["up", "--brokers", "10"], "--brokers 10"),
        (["up", "--brokers", "-1"], "--brokers -1"),
        (["up", "--broker-port", "65400"], "65600"),
        (["up", "--client-port", "65535"], "65536"),
        (["up", "--client-port", "2281"], "2281"),
        (["up", "--client-port", "0"], "--client-port"),
        (["serve"], "--config"),
        (["serve", "--config", "node.toml", "--set", "tick"], "'tick'"),
        (["serve", "--config", "node.toml", "--join", "--bootstrap"], "--bootstrap"),
        (["members"], "ACTION"),
        (["members", "grow"], "'grow'"),
        (["members", "add", "4"], "ADDR"),
        (["members", "add", "four", "h:1"], "'four'"),
        (["members", "add", "0", "h:1"], "ID = '0'"),
        (["members", "replace", "256"], "ID = '256'"),
        (["members", "remove", "-1"], "-1"),
        (["members", "add", "4", "nowhere"], "ADDR = 'nowhere'"),
        (["members", "add", "4", "0.0.0.0:2281"], "ADDR = '0.0.0.0:2281'"),
        (["members", "add", "4", "h:70000"], "ADDR = 'h:70000'"),
        (["members", "add", "4", "a;b|c=,d:5"], "ADDR = 'a;b|c=,d:5'"),
        (["members", "remove"], "ID"),
        (["members", "replace", "4", "--incarnation", "zz"], "--incarnation = 'zz'"),
        (["members", "replace", "4", "--incarnation", ""], "--incarnation = ''"),
        (["members", "replace", "4", "h:1"], "h:1"),
        (["members", "list", "--admin", "localhost"], "'localhost'"),
        (["members", "remove", "4", "--admin", "localhost"], "'localhost'"),
        (["snapshot"], "ACTION"),
        (["snapshot", "give"], "'give'"),
        (["snapshot", "take", "data"], "data"),
        (["snapshot", "take", "--path", "/"], "--path"),
        (["snapshot", "take", "--admin", "localhost"], "'localhost'"),
        (["status", "--admin", "localhost"], "'localhost'"),
        (["status", "--admin", "http://localhost"], "'http://localhost'"),
        (["status", "--admin", "http://h:port"], "'http://h:port'"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_what_is_wrong(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error, remedy = lines_of(capsys)
    assert error.startswith("error: ")
    assert named in error
    assert remedy.startswith("remedy: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["up", "--bogus"], "quorate up does not know --bogus", "see quorate up --help"),
        (["status", "--json", "x", "y"], "quorate status does not know x y", "see quorate status --help"),
        (["up", "--digest=HIDDEN"], "quorate up does not know --digest=***", "see quorate up --help"),
        (["up", "--nodes", "x"], "argument --nodes: 'x' is no whole number", "see quorate up --help"),
        (["up", "--client-port", "2.5"], "argument --client-port: '2.5' is no", "see quorate up --help"),
    ],
)
def test_wrong_usage_of_a_command_leads_to_its_own_help(
    arguments: list[str], problem: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    first, second = lines_of(capsys)
    assert first.startswith(f"error: {problem}")
    assert second == f"remedy: {remedy}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("super_digest=admin:HIDDEN", "super_digest=***"),
        ("admin:HIDDEN", "***"),
        ("admin:HIDDEN=", "***=***"),
    ],
)
def test_a_setting_without_a_section_is_told_without_its_value(
    given: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--config", str(tmp_path / "node.toml"), "--set", given]) == 2
    assert lines_of(capsys) == [
        f"error: --set {told!r} is no setting",
        "remedy: give SECTION.KEY=VALUE, as limits.tick_ms=1000",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_name_that_the_terminals_encoding_does_not_have_is_printed(tmp_path: Path, encoding: str) -> None:
    data_dir = os.fsencode(tmp_path) + "/\u20ac".encode() + b"\xff"
    os.mkdir(data_dir)  # noqa: PTH102  # its name is no text
    done = subprocess.run(
        [sys.executable, "-m", "quorum", "down", "--data-dir", data_dir],
        capture_output=True,
        check=False,
        env={**environment(), "PYTHONIOENCODING": encoding},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"nothing runs on ")
    assert done.stdout.endswith(b"\\udcff\n")


def test_ctrl_c_while_modules_load_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "quorum_load.py").write_text(
        "import os, signal, sys, runpy\n"
        # As in a terminal; who runs the tests in the background may have it ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'quorum.cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "runpy.run_module('quorum', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "quorum_load.py"), "--version"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().err
    assert all(name in told for name in ("up", "down", "serve", "status", "shell", "examples:"))


@pytest.mark.parametrize(
    "command",
    ["up", "down", "serve", "status", "doctor", "bundle", "members", "shell", "journal", "snapshot"],
)
def test_every_command_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert "examples:" in told
    assert f"quorate {command}" in told


def test_the_defaults_are_those_of_the_contract() -> None:
    up = build_parser().parse_args(["up"])
    assert (up.nodes, up.brokers, up.data_dir, up.detach) == (None, None, Path("data"), False)
    assert build_parser().parse_args(["down"]).data_dir == Path("data")


def ports_of_up(kind: str) -> list[str]:
    return [f"127.0.0.1:{DEFAULT_PORTS[kind] + number}" for number in range(3)]


def test_what_is_not_named_is_sought_at_every_port_of_up(capsys: pytest.CaptureFixture[str]) -> None:
    parse = build_parser().parse_args
    for words in ("status", "members list", "snapshot take", "changelog dump", "pipeline elections"):
        assert parse(words.split()).admin == ",".join(f"http://{each}" for each in ports_of_up("admin"))
    assert tuple(f"http://{each}" for each in ports_of_up("admin")) == DEFAULT_ADMIN_URLS
    for words in ("top", "doctor", "console", "backup TARGET", "import"):
        assert parse(words.split()).admin == ""
        with pytest.raises(SystemExit):
            main([*words.split(), "--help"])
        assert "8181 to 8183 of 127.0.0.1" in " ".join(capsys.readouterr().out.split())
    assert parse(["shell"]).hosts == ",".join(ports_of_up("client"))
    assert parse(["topics", "list"]).bootstrap == ",".join(ports_of_up("broker"))


def test_words_behind_the_shell_command_are_left_to_the_shell() -> None:
    arguments = build_parser().parse_args(
        ["shell", "--hosts", "h:1", "create", "--ephemeral", "/a", "--hosts"]
    )
    assert arguments.hosts == "h:1"
    assert arguments.words == ["create", "--ephemeral", "/a", "--hosts"]


def test_every_problem_of_a_configuration_has_its_own_two_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text('[node]\nid = 0\ncluster = "local"\ndata_dir = "d"\nidd = 1\n')
    assert main(["serve", "--config", str(file)]) == 1
    lines = lines_of(capsys)
    assert "error: node.id = 0: is out of range (1 to 255)" in lines
    assert any(line.startswith("error: node.idd = 1") for line in lines)
    assert [line.partition(":")[0] for line in lines] == ["error", "remedy"] * (len(lines) // 2)


def test_a_missing_configuration_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", str(tmp_path / "none.toml")]) == 1
    assert "No such file" in lines_of(capsys)[0]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["up", "--data-dir", str(tmp_path / "file" / "data")]) == 1
    assert str(tmp_path / "file") in lines_of(capsys)[0]


@pytest.mark.parametrize("file", ["lock", "up.json", "node-1/node.toml"])
def test_a_file_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path, file: str) -> None:
    """The kernel names no file of a descriptor; the limit makes every write beyond so many bytes fail."""
    bytes_max = {"lock": 0, "up.json": 64, "node-1/node.toml": 150}[file]
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_max}, {bytes_max}))"
    words = ["up", "--data-dir", str(tmp_path), *(f"--{key}-port={free_port()}" for key in DEFAULT_PORTS)]
    entry = f"from quorum.cli.main import main; sys.exit(main({[*words, '--nodes=1', '--brokers=0']!r}))"
    program = f"{limit}; import sys; {entry}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert f"{tmp_path / file}: File too large" in first
    assert second.startswith("remedy: ")


def test_an_output_that_takes_nothing_is_told_with_a_remedy(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "quorum", "down", "--data-dir", str(tmp_path)]
    with Path("/dev/full").open("wb") as full:
        # buffered, as it is by default: the error comes when the buffer is written
        buffered = {name: value for name, value in environment().items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=buffered
        )
    first, second, *_ = done.stderr.splitlines()
    assert first == "error: a file or stream that `quorate down` uses: No space left on device"
    assert second == "remedy: free space on that disk"


def test_down_where_nothing_ever_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--data-dir", str(tmp_path / "none")]) == 1
    assert str(tmp_path / "none") in lines_of(capsys)[0]
    assert main(["down", "--data-dir", str(tmp_path)]) == 0
    assert "nothing runs" in capsys.readouterr().out


def test_a_status_is_laid_out_for_people() -> None:
    lines = describe(STATUS, "http")
    assert any(line.startswith("leader") and "node 1" in line for line in lines)
    assert lines[-4:] == [
        "NODE  ADDRESS         ROLE         VOTES  MATCH  LAG",
        "1     127.0.0.1:2281  leader       yes    121    0",
        "2     127.0.0.1:2282  unreachable  yes    -      -",
        "10    127.0.0.1:2290  learner      no     100    20",
    ]


def test_asked_of_a_follower_the_last_line_names_the_leader() -> None:
    members = [{**member, "match_index": None} for member in STATUS["members"]]
    last = describe({**STATUS, "node_id": 2, "role": "follower", "members": members}, "https")[-1]
    assert "node 1" in last
    assert "--admin https://127.0.0.1:PORT" in last
    for member in members:
        member["role"] = "unreachable"
    assert describe({**STATUS, "members": members}, "http")[-1].endswith("the asked node knows none")


def test_a_status_without_a_leader_says_so() -> None:
    lines = describe({**STATUS, "leader_id": None, "cluster_id": "", "members": []}, "http")
    assert any("none known" in line for line in lines)
    assert any("no cluster id yet" in line for line in lines)


def test_a_command_of_another_distribution_is_found_and_cannot_replace_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "HELP = 'hum'\nDESCRIPTION = 'Hum.'\nEXAMPLES = ''\n"
        "def add_arguments(parser): parser.add_argument('--loud', action='store_true')\n"
        "def run(arguments):\n    print('hum', arguments.loud)\n    return 7\n"
    )
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quorate.commands]\nhum = elsewhere\nstatus = elsewhere\n")
    hum = run_python(["-m", "quorum", "hum", "--loud"], PYTHONPATH=str(tmp_path))
    assert (hum.returncode, hum.stdout) == (7, "hum True\n")
    assert (
        "usage: quorate status"
        in run_python(["-m", "quorum", "status", "--help"], PYTHONPATH=str(tmp_path)).stdout
    )


ASKED = """\
import atexit, sys
from quorum.cli.main import main
atexit.register(lambda: print(*sys.modules, sep=chr(10)))
"""


@pytest.mark.parametrize("command", ["serve", "broker"])
def test_a_process_loads_its_own_command_alone(command: str) -> None:
    told = run_python(["-c", f"{ASKED}main(['--profile=', '{command}', '--help'])"]).stdout
    found = set(re.findall(r"^(?:quorum\.cli|broker|pipeline)\.commands\.(\w+)$", told, re.MULTILINE))
    assert found == {command}


def test_the_module_is_the_command() -> None:
    assert run_python(["-m", "quorum", "--version"]).stdout == f"quorate {__version__}\n"


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    script = f"{sys.executable} -m quorum --help >&- ; true"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, env=environment()
    )
    assert "Traceback" not in done.stderr


def test_colours_only_on_a_terminal_and_never_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert styled("x", "red", Terminal()) == "\x1b[31mx\x1b[0m"
    assert styled("x", "red", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", "red", Terminal()) == "x"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert styled("x", "red", Terminal()) == "x"


def test_a_status_line_stays_below_the_news_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    console = Console(stream)
    console.show_status("3/3 ready")
    console.say("node 2 stopped")
    console.show_status("3/3 ready")
    console.show_status("")
    assert stream.getvalue() == "\r\x1b[K3/3 ready" + "\r\x1b[Knode 2 stopped\n3/3 ready" + "\r\x1b[K"


def test_elsewhere_there_is_no_status_line() -> None:
    stream = io.StringIO()
    console = Console(stream)
    console.show_status("3/3 ready")
    console.say("node 2 stopped", "yellow")
    assert stream.getvalue() == "node 2 stopped\n"


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert table(["A", "BB"], [["long", None], ["x", 1]]) == ["A     BB", "long  -", "x     1"]


def test_status_as_json_is_what_the_node_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "quorum.cli.commands.status.get_status", lambda url, _timeout_s: {**STATUS, "asked": url}
    )
    assert main(["status", "--json", "--admin", "http://h:1"]) == 0
    assert json.loads(capsys.readouterr().out) == {**STATUS, "asked": "http://h:1"}


def environment(**extra: str) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([*filter(None, [extra.pop("PYTHONPATH", "")]), root])
    return {**os.environ, "PYTHONPATH": path, **extra}


def run_python(arguments: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment(**extra)
    )


def test_an_authority_without_its_key_is_told_apart_from_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pki"
    assert main(["certs", "issue", str(folder), "n"]) == 2
    assert f"{folder} has no authority\nremedy: quorate certs init" in capsys.readouterr().err
    assert main(["certs", "init", str(folder)]) == 0
    (folder / "ca.key").unlink()
    assert main(["certs", "issue", str(folder), "n"]) == 2
    assert "and not its key, ca.key, which signs\nremedy: put ca.key there" in capsys.readouterr().err
