"""The commands that ask an admin port, against listeners that are no node, or one that does not answer.

What was sent and not answered may have been done: it is told as unknown, with what helps to find out. Only
where there was no connection it is said that nothing is reached. Whatever else comes is an error in two
lines that names the address, never a traceback. How real nodes answer is test_membership's and
test_admin_http's.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quorum.admin import client as adminclient
from quorum.admin.client import get_readiness, get_status
from quorum.cli.commands import members, snapshot, status
from quorum.cli.commands.control_plane import read_control_plane
from quorum.cli.main import main
from quorum.errors import UsageError
from tests.support.certificates import Authority

DEADLINE_S = 30.0
#: short: a listener that never answers is waited for so long
TIMEOUT_S = 0.2
DISK = "ab" * 16
Act = Callable[[socket.socket], None]
Lines = pytest.CaptureFixture[str]

ADD = ["members", "add", "4", "127.0.0.1:2284"]
REPLACE = ["members", "replace", "2"]
REPLACE_NAMED = [*REPLACE, "--incarnation", DISK]
REMOVE = ["members", "remove", "2"]
TAKE = ["snapshot", "take"]
CHANGES = [ADD, REPLACE, REPLACE_NAMED, REMOVE, TAKE]
QUESTIONS = [["status"], ["members", "list"]]


def read_request(connection: socket.socket) -> bytes:
    """Read one request with its body."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += connection.recv(65536) or pytest.fail(f"a request ended within {seen!r}")
    head, _, body = seen.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        while name == b"content-length" and len(body) < int(value):
            body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reset(connection: socket.socket) -> None:
    read_request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def close(connection: socket.socket) -> None:
    read_request(connection)


def say_nothing(connection: socket.socket) -> None:
    read_request(connection)
    assert connection.recv(1) == b"", "the command goes away"


def answering(content: bytes, status_line: str = "200 OK") -> Act:
    def act(connection: socket.socket) -> None:
        read_request(connection)
        head = f"HTTP/1.1 {status_line}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + content)

    return act


def saying(fields: object, status_line: str = "200 OK") -> Act:
    return answering(json.dumps(fields).encode(), status_line)


def raw(content: bytes) -> Act:
    def act(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(content)

    return act


@contextmanager
def listener(act: Act) -> Iterator[str]:
    """Take one connection on a port of its own; yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(DEADLINE_S)
                act(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands wait for a short time only."""
    monkeypatch.setattr(members, "CHANGE_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(snapshot, "TAKE_TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(status, "TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(members, "TIMEOUT_S", TIMEOUT_S)


def told(capsys: Lines, words: list[str], url: str, code: int = 1) -> tuple[str, str]:
    """Run a command that fails; returns its error and remedy."""
    assert main([*words, "--admin", url]) == code
    out, err = capsys.readouterr()
    assert out == ""
    error, remedy = err.splitlines()
    assert error.startswith("error: ")
    assert remedy.startswith("remedy: ")
    return error.removeprefix("error: "), remedy.removeprefix("remedy: ")


def noting(seen: list[bytes]) -> Act:
    """Answer a change, and keep what was sent."""

    def act(connection: socket.socket) -> None:
        seen.append(read_request(connection))
        body = b'{"members": []}'
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    return act


@pytest.mark.parametrize(("words", "forced"), [([], False), (["--force"], True)])
def test_a_replacement_is_forced_by_its_flag_alone(words: list[str], forced: bool) -> None:
    seen: list[bytes] = []
    with listener(noting(seen)) as url:
        assert main([*REPLACE_NAMED, *words, "--admin", url]) == 0
    assert b"Content-Type: application/json" in seen[0]
    assert (b'"force": true' in seen[0]) == forced


def test_a_change_without_a_body_says_that_it_is_json() -> None:
    seen: list[bytes] = []
    with listener(noting(seen)) as url:
        assert main([*REMOVE, "--admin", url]) == 0
    assert b"Content-Type: application/json" in seen[0]


def test_a_refusal_from_before_a_replacement_is_not_told_behind_it(capsys: Lines) -> None:
    """It advises to replace the node; the answer as JSON is the node's own."""
    refused = {"node_id": 2, "address": "h:2", "refusal": "if that one is lost run quorate members replace 2"}
    answer = {"members": [refused, {"node_id": 3, "address": "h:3", "refusal": "it has another secret"}]}
    with listener(saying(answer)) as url:
        assert main([*REPLACE, "--admin", url]) == 0
    out = capsys.readouterr().out
    assert "never counts again" in out
    assert "node 3 is refused: it has another secret" in out
    assert "node 2 is refused" not in out
    with listener(saying(answer)) as url:
        assert main([*REPLACE, "--admin", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (reset, "Connection reset by peer"),
        (close, "Remote end closed connection without response"),
        (say_nothing, "nothing came within 0.2 s"),
        (raw(b"\x00\x00\x00\x04ruok\x1b[2J"), "\\x00\\x00\\x00\\x04ruok\\x1b[2J"),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"), "is not of a node (HTTP 200)"),
        (answering(b"<p>Bad gateway", "502 Bad Gateway"), "is not of a node (HTTP 502)"),
        (saying({"error": "upstream timed out"}, "504 Gateway Timeout"), "is not of a node (HTTP 504)"),
        (saying({"done": True}), "is not of a node (HTTP 200)"),
        (saying({"members": [1], "size_bytes": "1"}), "is not of a node (HTTP 200)"),
        (saying({"members": [{"node_id": 2, "incarnation": 7}]}), "is not of a node (HTTP 200)"),
        (answering(100_000 * b"["), "is not of a node (HTTP 200)"),
    ],
)
@pytest.mark.usefixtures("hasty")
def test_a_change_that_was_sent_and_not_answered_is_told_as_unknown(
    act: Act, reason: str, capsys: Lines
) -> None:
    with listener(act) as url:
        error, _ = told(capsys, REMOVE, url)
    assert error.startswith(f"outcome unknown: remove of node 2 was sent to {url} and not answered: ")
    assert error.endswith(reason)


@pytest.mark.parametrize(
    ("words", "doing", "remedies"),
    [
        (ADD, "add of node 4", ["`quorate members list`"]),
        (REPLACE, "replace of node 2", ["members list --json", "incarnation of the lost disk"]),
        (REPLACE_NAMED, "replace of node 2", ["`quorate members list`", "the same --incarnation"]),
        (REMOVE, "remove of node 2", ["`quorate members list`"]),
        (TAKE, "the request for a snapshot", ["ask again"]),
    ],
)
def test_what_is_unknown_is_told_with_what_fits_the_change(
    words: list[str], doing: str, remedies: list[str], capsys: Lines
) -> None:
    with listener(close) as url:
        error, remedy = told(capsys, words, url)
    assert error.startswith(f"outcome unknown: {doing} was sent to {url} and not answered: ")
    assert [each for each in remedies if each not in remedy] == []
    assert "start the node" not in remedy


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("words", [*CHANGES, *QUESTIONS])
def test_where_nothing_listens_nothing_was_asked(words: list[str], capsys: Lines) -> None:
    url = closed_port()
    error, remedy = told(capsys, words, url)
    assert error == f"{url} cannot be reached: Connection refused"
    assert "start the node" in remedy


def test_a_connection_that_is_not_made_is_not_waited_for_as_an_answer_is(
    monkeypatch: pytest.MonkeyPatch, capsys: Lines
) -> None:
    monkeypatch.setattr(adminclient, "CONNECT_TIMEOUT_S", TIMEOUT_S)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as first:
        # One connection fills the backlog, and the next one is not answered.
        first.connect(server.getsockname())
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        error, remedy = told(capsys, TAKE, url)
    assert error == f"{url} cannot be reached: no connection within 0.2 s"
    assert "start the node" in remedy


def test_a_node_that_says_no_is_believed(capsys: Lines) -> None:
    refusal = {"error": "node 2 is no member", "remedy": "see who is", "definite": True}
    with listener(saying(refusal, "404 Not Found")) as url:
        assert told(capsys, REMOVE, url) == ("node 2 is no member", "see who is")


def test_a_node_that_does_not_know_is_told_in_its_own_words(capsys: Lines) -> None:
    unknown = {"error": "outcome unknown: remove of node 2 …", "remedy": "look", "definite": False}
    with listener(saying(unknown, "504 Gateway Timeout")) as url:
        assert told(capsys, REMOVE, url) == ("outcome unknown: remove of node 2 …", "look")


def test_what_a_refusal_says_does_not_act_on_the_terminal(capsys: Lines) -> None:
    refusal = {"error": "no\x1b[2J\nerror: all is lost", "remedy": "\u202eodd", "definite": True}
    with listener(saying(refusal, "409 Conflict")) as url:
        assert told(capsys, REMOVE, url) == ("no\\x1b[2J\\nerror: all is lost", "\\u202eodd")


@pytest.mark.parametrize("words", QUESTIONS)
@pytest.mark.usefixtures("hasty")
def test_a_question_without_an_answer_says_so(words: list[str], capsys: Lines) -> None:
    with listener(say_nothing) as url:
        error, remedy = told(capsys, words, url)
    assert error == f"{url} did not answer: nothing came within 0.2 s"
    assert "that node's log" in remedy


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"node_id": "1"},
        {"node_id": 1, "members": {"1": {}}},
        {"node_id": 1, "members": [2]},
        {"node_id": 1, "members": [{"id": 2}]},
        {"node_id": 1, "members": [{"node_id": 2, "match_index": "x"}]},
        {"node_id": 1, "commit_index": "x", "members": [{"node_id": 2, "match_index": 1}]},
        {"node_id": 1, "members": [{"node_id": 2, "refusal": {}}]},
    ],
)
@pytest.mark.parametrize("words", QUESTIONS)
def test_a_status_that_is_none_of_a_node_is_an_error(words: list[str], answer: Any, capsys: Lines) -> None:
    with listener(saying(answer)) as url:
        error, remedy = told(capsys, words, url)
    assert error == f"{url} does not answer as the admin port of a node (HTTP 200)"
    assert "--admin" in remedy


@contextmanager
def nobody() -> Iterator[str]:
    """The URL of a port that is taken and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_of_several_nodes_the_first_that_can_be_reached_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, nobody() as dead:
        live = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert adminclient.first_listening(f"{dead}, {live},{dead}") == live


def test_where_none_of_several_nodes_can_be_reached_each_is_named(capsys: Lines) -> None:
    with nobody() as one, nobody() as other:
        error, remedy = told(capsys, ["status"], f"{one},{other}")
    assert error == f"none can be reached of {one} (Connection refused), {other} (Connection refused)"
    assert remedy.startswith("start a node")


@pytest.mark.parametrize("words", [*QUESTIONS, ["changelog", "dump"]])
def test_a_port_that_wants_a_token_says_so_in_its_own_words(words: list[str], capsys: Lines) -> None:
    refusal = {"error": "this port needs a token", "remedy": "give one"}
    with listener(saying(refusal, "401 Unauthorized")) as url:
        assert told(capsys, words, url) == (f"{url}: this port needs a token", "give one")


def by_tls(context: ssl.SSLContext) -> Act:
    def act(connection: socket.socket) -> None:
        secure = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with contextlib.suppress(OSError), secure:
            try:
                secure.do_handshake()
                secure.recv(1)
            except ssl.SSLError:
                # What is still on its way is taken, so that the alert arrives.
                os.read(secure.fileno(), 65536)

    return act


def test_a_port_that_is_not_believed_or_does_not_believe_is_told_with_what_to_do(
    tmp_path: Path, capsys: Lines
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    good, other_name = ours.issue("good"), ours.issue("other", hosts=("elsewhere.example",))
    stranger = [str(each) for each in theirs.issue("stranger")]
    capsys.readouterr()

    def remedy(certificate: tuple[Path, Path], *words: str, needs: bool = False) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        if needs:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(ours.file)
        with listener(by_tls(context)) as url:
            return told(capsys, ["status", *words], url.replace("http:", "https:"))[1]

    believing = ("--ca", str(ours.file))
    assert remedy(good) == "name who signed its certificate with --ca FILE"
    assert remedy(good, "--ca", str(theirs.file)) == "name who signed its certificate with --ca FILE"
    assert "or dial another name" in remedy(other_name, *believing)
    assert "--cert FILE and --key FILE" in remedy(good, *believing, needs=True)
    shown = ("--cert", stranger[0], "--key", stranger[1])
    assert "--cert FILE and --key FILE" in remedy(good, *believing, *shown, needs=True)

    def speak_plainly(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listener(speak_plainly) as url:
        plain = told(capsys, ["status", *believing], url.replace("http:", "https:"))[1]
    assert plain == "check that this port speaks TLS"


def test_a_silent_quorum_is_said_to_be_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hosts = f"127.0.0.1:{server.getsockname()[1]}"
        found = read_control_plane(hosts, 0.2)
    assert found is not None
    assert found["problem"] == f"the quorum at {hosts} does not answer: nothing came within 0.2 s"


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_status_with_the_least_that_it_must_say_is_shown(words: list[str], capsys: Lines) -> None:
    with listener(saying({"node_id": 1, "members": None, "role": "starting"})) as url:
        assert main([*words, "--admin", url]) == 0
    assert "NODE" in capsys.readouterr().out


def test_what_a_status_says_does_not_act_on_the_terminal(capsys: Lines) -> None:
    odd = "x\x1b[2J\n\u202ey"
    member = {"node_id": 2, "address": f"{odd}:1", "role": odd, "refusal": odd}
    with listener(saying({"node_id": 1, "cluster": odd, "problem": odd, "members": [member]})) as url:
        assert main(["status", "--admin", url]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    assert out.count("x\\x1b[2J\\n\\u202ey") == 5
    # 9 facts, a blank, the header, the member, its refusal, where LAG is known
    assert len(out.splitlines()) == 14


def test_a_readiness_that_is_none_of_a_node_is_told_by_its_code() -> None:
    with listener(answering(100_000 * b"[", "503 Service Unavailable")) as url:
        assert get_readiness(url, DEADLINE_S) == (False, "HTTP 503")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1:8181",
        "http://[zz]:80",
        "http://a..b:80",
        f"http://{64 * 'a'}.b:80",
        "http://a b:80",
        "http://a\x7fb:80",
        "http://\u00ad:80",
        "http://h:80?x",
        "http://h:80#x",
        "http://h:0",
        "http://h:65536",
        "http://::1:80",
        "ftp://h:80",
        "",
    ],
)
@pytest.mark.parametrize("words", [["status"], REMOVE, TAKE])
def test_what_is_no_address_of_an_admin_port_is_wrong_usage(
    words: list[str], url: str, capsys: Lines
) -> None:
    error, remedy = told(capsys, words, url, code=2)
    assert error == f"--admin {url!r} is not the address of an admin port"
    assert "in brackets" in remedy


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hunter2@h:80",
        "http://hunter2@h:80",
        "me:hunter2@h:80",
        "http://a@hunter2@h:80/x",
        "hunter2@",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_shown(url: str, capsys: Lines) -> None:
    error, remedy = told(capsys, ["status"], url, code=2)
    assert "***@" in error
    assert "hunter2" not in error + remedy
    assert "no name or password" in remedy


def test_an_ipv6_address_is_asked_in_brackets() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError):
            get_status(f"http://::1:{port}", DEADLINE_S)

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                saying({"node_id": 7})(connection)

        server.settimeout(DEADLINE_S)
        thread = threading.Thread(target=serve)
        thread.start()
        assert get_status(f"http://[::1]:{port}", DEADLINE_S) == {"node_id": 7}
        thread.join(DEADLINE_S)


def test_what_an_error_names_does_not_act_on_the_terminal(tmp_path: Path, capsys: Lines) -> None:
    assert main(["journal", "verify", f"{tmp_path}/a\x1b[2J\u202e"]) == 2
    error, _ = capsys.readouterr().err.splitlines()
    assert error.isprintable()
    assert "a\\x1b[2J\\u202e cannot be read" in error
