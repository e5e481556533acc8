"""What `quorate backup` makes of a node's answers: a log that goes meanwhile, and answers that do not fit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from quorum.admin.client import RefusedByNodeError
from quorum.backup.manifest import BackupDamagedError
from quorum.backup.reading import rebuild
from quorum.backup.taking import TRIES_MAX, BackupFailedError, take
from quorum.cli.main import main
from quorum.errors import QuorateError, UnreachableError
from quorum.raft.journal.handing import pack_entries
from tests.unit.backup.written import CLUSTER_ID, Log, run_of, write_backup

Answer = tuple[int, dict[str, object]]
#: entries of one answer
PAGE = 3
GONE: Answer = (410, {"error": "this node's log begins later", "remedy": "begin with a snapshot"})
REFUSED: Answer = (403, {"error": "this needs the role admin", "remedy": "send another token"})


class Node:
    """An admin port that gives a log from its founding on, unless a path has other answers first."""

    def __init__(self, folder: Path) -> None:
        log = Log()
        log.batch(*[run_of(1, [1, f"/n{number}", b"", None, 0]) for number in range(9)])
        for number in range(9):
            log.batch(run_of(2, [5, f"/n{number}", b"changed", -1]))
        self.entries = log.entries
        write_backup(folder, log.entries)
        machine = rebuild(folder, has_snapshot=False).machine
        self.status = {
            "applied_index": machine.applied_index,
            "zxid": machine.zxid,
            "state_digest": machine.state_digest.hex(),
            "cluster": "test",
            "cluster_id": CLUSTER_ID,
        }
        #: {path: answers that come first}
        self.first: dict[str, list[Answer]] = {}
        self.asked: list[str] = []

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, bytes]:
        self.asked.append(path)
        if self.first.get(path):
            code, fields = self.first[path].pop(0)
            return code, json.dumps(fields).encode()
        if path == "/v1/journal/entries":
            first = int(query["from_index"][0])
            return 200, pack_entries(self.entries[first - 1 : first - 1 + PAGE])
        answers: dict[str, dict[str, object]] = {
            "/v1/journal": {"first_index": 1},
            "/v1/status": self.status,
            "/v1/znodes": {},
        }
        return 200, json.dumps(answers[path]).encode()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "expected")


@pytest.fixture
def url(node: Node) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            code, body = node.answer(parts.path, parse_qs(parts.query))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named so where it is inherited
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "backup"
    made.mkdir()
    return made


def failed(urls: list[str], folder: Path, kind: type[QuorateError]) -> str:
    """Take a backup that fails, which leaves nothing; returns what is said."""
    with pytest.raises(kind) as caught:
        take(urls, folder)
    assert list(folder.iterdir()) == []
    return caught.value.message


def test_a_log_is_read_page_by_page_as_it_is(node: Node, url: str, folder: Path, tmp_path: Path) -> None:
    manifest = take([url], folder)
    assert (folder / "journal").read_bytes() == (tmp_path / "expected" / "journal").read_bytes()
    assert (manifest.last_zxid, manifest.last_index) == (node.status["zxid"], len(node.entries))
    # The end is found after the beginning.
    assert node.asked[:3] == ["/v1/journal", "/v1/znodes", "/v1/status"]


def test_what_is_applied_meanwhile_is_left_out(node: Node, url: str, folder: Path, tmp_path: Path) -> None:
    first = rebuild_to(node, tmp_path, 7)
    node.status = first
    assert take([url], folder).last_index == 7


def rebuild_to(node: Node, tmp_path: Path, last_index: int) -> dict[str, object]:
    """Return the status of the node when it had applied so much."""
    earlier = tmp_path / "earlier"
    write_backup(earlier, node.entries[:last_index])
    machine = rebuild(earlier, has_snapshot=False).machine
    digest = machine.state_digest.hex()
    return {**node.status, "applied_index": last_index, "zxid": machine.zxid, "state_digest": digest}


def test_a_log_that_is_compacted_meanwhile_is_read_anew(node: Node, url: str, folder: Path) -> None:
    node.first["/v1/journal/entries"] = [GONE] * (TRIES_MAX - 1)
    assert take([url], folder).last_index == len(node.entries)
    assert node.asked.count("/v1/journal") == TRIES_MAX


def test_a_log_that_is_always_compacted_ends_the_command(node: Node, url: str, folder: Path) -> None:
    node.first["/v1/journal/entries"] = [GONE] * TRIES_MAX
    said = failed([url], folder, BackupFailedError)
    assert said == f"{url} let its log go {TRIES_MAX} times while that was read: entry 1 is gone"


def test_a_state_that_does_not_follow_from_the_log_is_no_backup(node: Node, url: str, folder: Path) -> None:
    node.status = {**node.status, "state_digest": "0" * 32}
    assert "its state was" in failed([url], folder, BackupFailedError)


def test_a_node_that_refuses_is_named_with_its_words(node: Node, url: str, folder: Path) -> None:
    node.first["/v1/journal/entries"] = [REFUSED]
    assert failed([url], folder, RefusedByNodeError) == f"{url}: this needs the role admin"


def test_another_server_than_a_node_is_named(node: Node, url: str, folder: Path) -> None:
    node.first["/v1/journal"] = [(200, {"first_index": "one"})]
    assert "does not answer as the admin port of a node" in failed([url], folder, UnreachableError)


def test_entries_that_are_not_the_next_ones_are_refused(node: Node, url: str, folder: Path) -> None:
    node.entries = node.entries[1:]
    assert "what is there is not entry 1" in failed([url], folder, UnreachableError)


def test_the_next_node_is_asked_where_one_is_down(node: Node, url: str, folder: Path) -> None:
    node.first["/v1/znodes"] = [(503, {"error": "no leader", "remedy": "wait"})]
    assert take(["http://127.0.0.1:9", url, url], folder).last_index == len(node.entries)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_disk_that_fills_while_the_manifest_is_written_leaves_nothing(
    url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_new: bool,
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quorum.backup.taking.encode_manifest", fail)
    target = tmp_path / "target"
    if not is_new:
        target.mkdir()
    assert main(["backup", str(target), "--admin", url]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert not list(target.iterdir()) if target.exists() else is_new


def test_a_backup_that_reads_back_otherwise_leaves_nothing(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, *_: object) -> None:
        raise BackupDamagedError(str(path), "it has 0 bytes")

    monkeypatch.setattr("quorum.backup.taking.read_backup", fail)
    assert "it has 0 bytes" in failed([url], folder, BackupDamagedError)
