"""Journal and snapshot tools on directories that a real node wrote, whole and damaged in many ways."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quorum.cli.main import main
from quorum.client import Client, CreateMode
from quorum.config.node import NodeConfig
from quorum.errors import DataDirError
from quorum.node.node import QuorumNode
from quorum.node.storage import load_machine, open_storage
from quorum.platform.os_runtime import OsDisk
from quorum.raft.datadir.identity import Start
from quorum.raft.journal.format import SECTOR_BYTES
from quorum.raft.journal.note import NOTE_NAME, DurableEnd, NoteFile
from quorum.raft.snapshots.format import SnapshotReader
from tests.support.node_configs import SMALL_SEGMENTS, loopback_configs
from tests.support.nodes import server_environment

DEADLINE_S = 30.0
ZNODES = 150
#: znodes after which a snapshot is taken
SNAPSHOTS_AFTER = (90, 110)
#: the root, three of ZooKeeper's, /kept, /session and /n0 to /n110
IN_SNAPSHOT = 4 + 2 + 111


class Written(NamedTuple):
    """A data directory that a node left, and what it knew at its end."""

    config: NodeConfig
    data_dir: Path
    last_index: int
    state_digest: str

    def copy(self, folder: Path) -> Written:
        (config,) = loopback_configs(folder, sections=SMALL_SEGMENTS)
        shutil.copytree(self.data_dir, config.node.data_dir)
        return self._replace(config=config, data_dir=config.node.data_dir)

    def segments(self) -> list[Path]:
        return sorted((self.data_dir / "journal").glob("*.segment"))

    def snapshots(self) -> list[Path]:
        return sorted((self.data_dir / "snapshots").glob("*.snapshot"))

    def note(self) -> Path:
        return self.data_dir / "journal" / NOTE_NAME

    def weaken_note(self) -> None:
        """Let the note claim as little as it does at the beginning, as a power cut may."""
        NoteFile.create(OsDisk(), str(self.note().parent), DurableEnd(1, 0, 1)).close()

    def starts(self) -> bool:
        """Whether a node would start from it; changes it as a start does."""
        try:
            open_storage(self.config.node, self.config.raft, OsDisk(), Start.PLAIN, random.Random(0)).close()
        except DataDirError:
            return False
        return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what a node knows of itself changes without an event
            await asyncio.sleep(0)


async def write(folder: Path, znodes: int) -> Written:
    """Run a node, write to it, with snapshots on the way, and stop it."""
    (config,) = loopback_configs(folder, sections=SMALL_SEGMENTS)
    node = QuorumNode(config, bootstrap=True)
    await node.start()
    try:
        await until(lambda: node.view.readiness()[0])
        async with Client(str(config.listen.client)) as client:
            await client.create("/kept", b"\x00binary\xff")
            await client.create("/session", b"", CreateMode.EPHEMERAL)
            for number in range(znodes):
                await client.create(f"/n{number}", b"value %d " % number * 200)
                if number in SNAPSHOTS_AFTER:
                    await node.take_snapshot()
            status = node.view.status()
    finally:
        await node.stop()
    assert node.failure is None
    return Written(
        config, config.node.data_dir, int(str(status["applied_index"])), str(status["state_digest"])
    )


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Written:
    written = asyncio.run(write(tmp_path_factory.mktemp("offline"), ZNODES))
    assert len(written.segments()) >= 3, "several segments are left after compaction"
    assert len(written.snapshots()) == 2
    return written


@pytest.fixture
def written(pristine: Written, tmp_path: Path) -> Written:
    return pristine.copy(tmp_path)


class Told(NamedTuple):
    """What a command line said."""

    code: int
    out: str
    err: str


Tool = Callable[..., Told]


def picture(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything of a folder that a tool could change."""
    found: dict[str, tuple[int, int, int, bytes]] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        facts = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (facts.st_mtime_ns, facts.st_mode, facts.st_ino, content)
    return found


@pytest.fixture
def tool(written: Written, capsys: pytest.CaptureFixture[str]) -> Tool:
    """Run a tool and see that it changed nothing: no byte, no time of change, no name."""

    def run(*arguments: object) -> Told:
        before = picture(written.data_dir)
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert picture(written.data_dir) == before
        return Told(code, said.out, said.err)

    return run


def flip(path: Path, at: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def used_bytes(path: Path) -> int:
    return len(path.read_bytes().rstrip(b"\0"))


def json_lines(told: Told) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.out.splitlines()]


# --- a whole directory -------------------------------------------------------------------------------------


def test_verify_says_with_what_a_node_would_start(tool: Tool, written: Written) -> None:
    told = tool("journal", "verify", f"{written.data_dir}/")
    assert (told.code, told.err) == (0, "")
    rows = json_lines(tool("journal", "dump", written.data_dir))
    indexes = [row["index"] for row in rows if row["type"] == "entry"]
    assert written.last_index <= indexes[-1]
    newest = int(written.snapshots()[-1].name.split("-")[0])
    assert told.out.splitlines() == [
        f"snapshot: up to entry {newest}",
        f"live log: {indexes[0]}-{indexes[-1]}; ends with entry {indexes[-1]} of term 1",
        "hard state: term 1, vote 1",
        "good",
    ]


def test_dump_shows_every_entry_once_with_its_commands(tool: Tool, written: Written) -> None:
    rows = json_lines(tool("journal", "dump", written.data_dir))
    entries = [row for row in rows if row["type"] == "entry"]
    assert [row["index"] for row in entries] == list(range(entries[0]["index"], entries[-1]["index"] + 1))
    created = [
        command["path"]
        for row in entries
        for run in row.get("content", ())
        for command in run["commands"]
        if command["op"].startswith("create") and "path" in command
    ]
    assert created[-1] == f"/n{ZNODES - 1}"
    assert created == [f"/n{number}" for number in range(ZNODES - len(created), ZNODES)]
    assert [row["type"] for row in rows].count("header") == len(written.segments())
    assert all(row["term"] == 1 and row["stamp_ms"] > 0 for row in entries)


def test_the_key_of_the_session_passwords_is_not_shown(tool: Tool, written: Written, tmp_path: Path) -> None:
    (tmp_path / "young").mkdir()
    young = asyncio.run(write(tmp_path / "young", 1))
    content = young.segments()[0].read_bytes()
    at = content.index(b'"session_key":"') + len(b'"session_key":"')
    key = content[at : at + 64].decode()
    dumped = tool("journal", "dump", young.data_dir).out
    assert '"kind": "found"' in dumped, "the entry that holds the key is there"
    assert key not in dumped
    for path in written.snapshots():
        machine = load_machine(SnapshotReader(OsDisk().open(str(path))), 0)[0]
        said = tool("snapshot", "inspect", path).out
        assert machine.session_key.hex() not in said
        assert base64.b64encode(machine.session_key).decode() not in said


def test_inspect_of_a_good_snapshot_says_what_it_holds(tool: Tool, written: Written) -> None:
    newest = written.snapshots()[-1]
    told = tool("snapshot", "inspect", newest)
    assert (told.code, told.err) == (0, "")
    facts = json.loads(told.out)
    assert facts["verdict"] == "good"
    assert facts["log_index"] == int(newest.name.split("-")[0])
    assert facts["size_bytes"] == newest.stat().st_size
    assert facts["znodes"] == IN_SNAPSHOT
    assert (facts["sessions"], facts["ephemerals"]) == (1, 1)
    assert list(facts["configuration"]["voters"]) == ["1"]
    assert len(facts["state_digest"]) == len(facts["apply_digest"]) == 32
    assert facts["cluster_id"] == json.loads((written.data_dir / "identity.json").read_text())["cluster_id"]


@pytest.mark.parametrize("name", ["node-1", "node-1/snapshots", "node-1/snapshots/"])
def test_of_a_folder_the_newest_snapshot_is_taken(
    tool: Tool, written: Written, tmp_path: Path, name: str
) -> None:
    told = tool("snapshot", "inspect", f"{tmp_path}/{name}")
    assert json.loads(told.out)["log_index"] == int(written.snapshots()[-1].name.split("-")[0])


def test_inspect_shows_all_znodes(tool: Tool, written: Written) -> None:
    listed = {row["path"]: row for row in json_lines(tool("snapshot", "inspect", written.data_dir, "--tree"))}
    assert len(listed) == IN_SNAPSHOT
    assert {"/zookeeper/config", "/kept", "/n70"} <= set(listed)
    znode = listed["/kept"]
    assert (znode["version"], znode["data_length"]) == (0, 8)
    assert znode["data"] == {"base64": "AGJpbmFyef8="}
    assert znode["acl"] == [[31, "world", "anyone"]]
    assert listed["/"]["num_children"] == IN_SNAPSHOT - 3
    assert listed["/session"]["ephemeral_owner"] == 1


# --- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost_bytes", [1, 70], ids=["its trailer", "records"])
def test_a_torn_end_is_no_damage(tool: Tool, written: Written, lost_bytes: int) -> None:
    newest = written.segments()[-1]
    content = newest.read_bytes()[: used_bytes(newest) - lost_bytes]
    newest.write_bytes(content)
    # A group that a power cut tore was not durable yet, so nothing claims that it was.
    written.weaken_note()
    told = tool("journal", "verify", written.data_dir)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("cut ")
    assert str(newest) in told.out.splitlines()[0]
    assert tool("journal", "dump", written.data_dir).code == 0
    assert written.starts()


@pytest.mark.parametrize("kept", ["", "nothing", "half", "all but a group"])
def test_a_newest_segment_that_is_gone_or_cut_is_missed_by_a_node_without_peers(
    tool: Tool, written: Written, kept: str
) -> None:
    newest = written.segments()[-1]
    used = used_bytes(newest)
    if not kept:
        newest.unlink()
    else:
        os.truncate(newest, {"nothing": 0, "half": used // 2, "all but a group": used - 1500}[kept])
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 1
    assert str(newest) in told.err
    assert "remedy: put the file back" in told.err
    assert not written.starts()


def test_a_trailer_that_cannot_be_read_is_written_anew(tool: Tool, written: Written) -> None:
    newest = written.segments()[-1]
    flip(newest, used_bytes(newest) - 1)
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 0
    assert str(newest) in told.out.splitlines()[0]
    assert written.starts()
    assert "cut " not in tool("journal", "verify", written.data_dir).out


def test_a_slot_of_the_note_that_cannot_be_read_is_spoken_of(tool: Tool, written: Written) -> None:
    flip(written.note(), 12)
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 0
    assert f"{written.note()}: the slot at byte 0 cannot be read" in told.out
    assert "would not be noticed" in told.out
    assert written.starts()


@pytest.mark.parametrize("command", [("journal", "verify"), ("journal", "dump")])
def test_a_pipe_in_the_place_of_the_lock_is_not_waited_for(
    written: Written, command: tuple[str, str]
) -> None:
    lock = written.data_dir / "lock"
    lock.unlink(missing_ok=True)
    os.mkfifo(lock)
    assert main([*command, str(written.data_dir)]) == 2


@pytest.mark.parametrize(
    "place",
    [
        "formatting",
        "journal/00000000000000000099.segment.partial",
        "journal/durable.partial",
        "snapshots/x.partial",
    ],
)
def test_a_folder_that_a_start_would_have_to_remove_is_a_reason_to_refuse(
    tool: Tool, written: Written, place: str
) -> None:
    (written.data_dir / place).mkdir()
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 1
    assert str((written.data_dir / place).parent) in told.err
    assert not written.starts()


def test_a_reader_that_goes_is_no_damage(written: Written) -> None:
    command = [sys.executable, "-m", "quorum", "journal", "dump", str(written.data_dir)]
    gone, output = os.pipe()
    os.close(gone)
    closed = ["bash", "-c", f"{shlex.join(command)} >&-"]
    for arguments, standard_output, code in ((command, output, 141), (closed, subprocess.DEVNULL, 0)):
        done = subprocess.run(
            arguments,
            stdout=standard_output,
            stderr=subprocess.PIPE,
            env=server_environment(),
            check=False,
            text=True,
        )
        assert (done.returncode, done.stderr) == (code, "")
    os.close(output)


def test_a_flipped_bit_is_named_and_dump_ends_there(tool: Tool, written: Written) -> None:
    whole = json_lines(tool("journal", "dump", written.data_dir))
    place = next(at for at, row in enumerate(whole) if row.get("index") == written.last_index - 3)
    damaged = whole[place]
    path = written.data_dir / "journal" / damaged["segment"]
    flip(path, damaged["offset"] + 40)
    for action, out in (("verify", []), ("dump", whole[:place])):
        told = tool("journal", action, written.data_dir)
        assert told.code == 1
        assert f"error: {path} is damaged at byte {damaged['offset']}" in told.err
        assert "remedy: " in told.err
        assert json_lines(told) == out
    assert not written.starts()


def zero_a_sector(written: Written) -> None:
    path = written.segments()[0]
    content = bytearray(path.read_bytes())
    content[4 * SECTOR_BYTES : 5 * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    path.write_bytes(content)


def cut_an_older_segment(written: Written) -> None:
    path = written.segments()[0]
    path.write_bytes(path.read_bytes()[: used_bytes(path) - 100])


def empty_a_segment(written: Written) -> None:
    written.segments()[1].write_bytes(b"")


def remove_a_segment(written: Written) -> None:
    written.segments()[1].unlink()


def swap_a_segment(written: Written) -> None:
    first, second = written.segments()[:2]
    second.write_bytes(first.read_bytes())


def remove_the_snapshots(written: Written) -> None:
    for path in written.snapshots():
        path.unlink()


def remove_all_segments(written: Written) -> None:
    for path in written.segments():
        path.unlink()


def remove_the_journal(written: Written) -> None:
    shutil.rmtree(written.data_dir / "journal")


def damage_the_identity(written: Written) -> None:
    flip(written.data_dir / "identity.json", 30)


def remove_the_identity(written: Written) -> None:
    (written.data_dir / "identity.json").unlink()


@pytest.mark.parametrize(
    ("damage", "told_of"),
    [
        (zero_a_sector, "damaged at byte"),
        (cut_an_older_segment, "a later segment exists"),
        (empty_a_segment, "damaged at byte 0"),
        (remove_a_segment, "the segment is missing"),
        (swap_a_segment, "damaged at byte 0"),
        (remove_the_snapshots, "the newest good snapshot ends with entry 0"),
        (remove_all_segments, "holds no segment"),
        (remove_the_journal, "holds no segment"),
        (damage_the_identity, "identity.json is damaged"),
        (remove_the_identity, "holds no identity.json"),
    ],
)
def test_damage_of_every_kind_is_found_and_said(
    tool: Tool, written: Written, damage: Callable[[Written], None], told_of: str
) -> None:
    damage(written)
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 1
    assert told_of in told.err
    assert "remedy: " in told.err
    assert not written.starts()


def test_files_that_do_not_belong_there_do_no_harm(tool: Tool, written: Written) -> None:
    (written.data_dir / "journal" / "notes.txt").write_text("mine")
    (written.data_dir / "journal" / "00000000000000000099.segment.partial").write_bytes(b"begun")
    (written.data_dir / "snapshots" / "old.snapshot.damaged").write_bytes(b"aside")
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 0
    assert told.out.splitlines()[-1] == "good"


def test_another_cluster_s_identity_is_noticed(tool: Tool, written: Written, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = asyncio.run(write(tmp_path / "other", 1))
    shutil.copy(other.data_dir / "identity.json", written.data_dir / "identity.json")
    told = tool("journal", "verify", written.data_dir)
    assert told.code == 1
    assert "identity of the cluster" in told.err
    assert not written.starts()


def test_verify_agrees_with_a_start_whatever_bit_is_flipped(
    written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(4)
    refused = 0
    for number in range(60):
        folder = tmp_path / f"copy-{number}"
        folder.mkdir()
        copy = written.copy(folder)
        path = rng.choice(copy.segments())
        at = rng.randrange(used_bytes(path))
        flip(path, at, rng.randrange(8))
        code = main(["journal", "verify", str(copy.data_dir)])
        said = capsys.readouterr()
        starts = copy.starts()
        assert code == (0 if starts else 1), (path.name, at, said)
        if code == 1:
            assert str(path) in said.err
            refused += 1
    assert refused > 30


@pytest.mark.parametrize("part", ["magic", "header", "middle", "footer"])
def test_a_flipped_bit_in_a_snapshot_is_found_and_said(tool: Tool, written: Written, part: str) -> None:
    newest = written.snapshots()[-1]
    size = newest.stat().st_size
    at = {"magic": 3, "header": 40, "middle": size // 2, "footer": size - 5}[part]
    flip(newest, at)
    for arguments in ((), ("--tree",)):
        told = tool("snapshot", "inspect", newest, *arguments)
        assert told.code == 1
        assert f"error: {newest} is damaged at byte" in told.err
        assert "remedy: " in told.err
    facts = json.loads(tool("snapshot", "inspect", newest).out)
    assert facts["verdict"] == "damaged"
    assert facts["offset"] <= at
    assert ("log_index" in facts) == (part not in ("magic", "header"))
    verified = tool("journal", "verify", written.data_dir)
    assert (verified.code, verified.err) == (3, "")
    assert f"starts from an older snapshot: {newest} is damaged" in verified.out
    assert written.starts(), "it falls back to the snapshot before"


@pytest.mark.parametrize(
    ("broken", "gone", "code", "told_of"),
    [
        ([1], [], 3, "damaged, but a start works"),
        ([0], [], 0, "good"),
        ([0, 1], [], 1, "{1} is damaged"),
        ([1], [0], 1, "{1} is damaged"),
        ([0], [1], 1, "{0} is damaged"),
    ],
)
def test_verify_tells_damage_that_a_start_gets_by_from_damage_that_it_refuses(
    tool: Tool, written: Written, broken: list[int], gone: list[int], code: int, told_of: str
) -> None:
    snapshots = written.snapshots()
    for number in broken:
        flip(snapshots[number], 40)
    for number in gone:
        snapshots[number].unlink()
    told = tool("journal", "verify", written.data_dir)
    assert told.code == code
    said = told.out + told.err
    assert said.count(told_of.format(*(path.name for path in snapshots))) == 1
    assert written.starts() == (code != 1)


def test_a_snapshot_under_a_name_that_no_node_gives_counts_for_nothing(tool: Tool, written: Written) -> None:
    older, newest = written.snapshots()
    older.unlink()
    newest.rename(newest.with_name("copy.snapshot"))
    assert tool("journal", "verify", written.data_dir).code == 1
    assert not written.starts()


def test_every_flipped_bit_of_a_snapshot_is_found(written: Written, tool: Tool) -> None:
    newest = written.snapshots()[-1]
    rng = random.Random(5)
    for _ in range(60):
        at, bit = rng.randrange(newest.stat().st_size), rng.randrange(8)
        flip(newest, at, bit)
        assert tool("snapshot", "inspect", newest).code == 1, (at, bit)
        flip(newest, at, bit)
    assert tool("snapshot", "inspect", newest).code == 0


@pytest.mark.parametrize("size", [0, 5, 30, -1, -20, 0.5])
def test_a_cut_snapshot_is_found(tool: Tool, written: Written, size: float) -> None:
    newest = written.snapshots()[-1]
    content = newest.read_bytes()
    newest.write_bytes(content[: int(size * len(content)) if 0 < size < 1 else int(size)])
    told = tool("snapshot", "inspect", newest)
    assert told.code == 1
    assert "is damaged at byte" in told.err


def test_a_snapshot_with_more_behind_it_or_under_another_name_is_found(tool: Tool, written: Written) -> None:
    older, newest = written.snapshots()
    content = older.read_bytes()
    older.write_bytes(content + b"more")
    assert "after the footer" in tool("snapshot", "inspect", older).err
    newest.write_bytes(content)
    assert "it is the snapshot of entry" in tool("snapshot", "inspect", newest).err


# --- usage -------------------------------------------------------------------------------------------------


def test_a_directory_that_a_node_uses_is_refused_and_a_snapshot_of_it_is_not(
    written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = open_storage(written.config.node, written.config.raft, OsDisk(), Start.PLAIN, random.Random(0))
    before = picture(written.data_dir)
    try:
        for action in ("verify", "dump"):
            assert main(["journal", action, str(written.data_dir)]) == 2
            said = capsys.readouterr()
            assert (
                f"data directory {written.data_dir} is in use by the process with id {os.getpid()}"
                in said.err
            )
            assert "stop that node first" in said.err
            assert said.out == ""
        assert main(["snapshot", "inspect", str(written.data_dir)]) == 0
        assert picture(written.data_dir) == before
    finally:
        storage.close()
    assert main(["journal", "verify", str(written.data_dir)]) == 0


@pytest.mark.parametrize(
    ("arguments", "told_of"),
    [
        (("journal",), "ACTION"),
        (("journal", "verify"), "DATA_DIR"),
        (("journal", "repair", "."), "repair"),
        (("journal", "verify", "{missing}"), "missing"),
        (("journal", "dump", "{missing}"), "missing"),
        (("journal", "verify", "{file}"), "identity.json"),
        (("journal", "verify", "{parent}"), "no node's data directory"),
        (("snapshot", "inspect"), "PATH"),
        (("snapshot", "inspect", "{missing}"), "missing"),
        (("snapshot", "inspect", "{parent}"), "holds no snapshot"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    tool: Tool, written: Written, tmp_path: Path, arguments: tuple[str, ...], told_of: str
) -> None:
    names = {
        "missing": tmp_path / "missing",
        "file": written.data_dir / "identity.json",
        "parent": tmp_path,
        "data": written.data_dir,
    }
    told = tool(*(argument.format(**names) for argument in arguments))
    assert told.code == 2
    assert told_of in told.err
    assert "remedy: " in told.err


def test_what_no_snapshot_can_be_read_from_is_no_damage(tool: Tool, tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "snapshots"
    os.mkfifo(pipe)
    folder.symlink_to(folder)
    for path, problem in ((pipe, f"{pipe} cannot be read"), (tmp_path, f"{folder} cannot be read")):
        told = tool("snapshot", "inspect", path)
        assert (told.code, told.out) == (2, "")
        assert problem in told.err
        assert "remedy: name a snapshot file" in told.err


def test_a_data_directory_of_quorate_up_names_those_of_its_nodes(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "up" / "node-2").mkdir(parents=True)
    assert f"{tmp_path}/up/node-2/data" in tool("journal", "verify", tmp_path / "up").err


def test_the_command_itself(written: Written) -> None:
    command = (sys.executable, "-m", "quorum", "journal", "verify", str(written.data_dir))
    flip(written.segments()[0], 100)
    done = subprocess.run(command, capture_output=True, env=server_environment(), check=False, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
