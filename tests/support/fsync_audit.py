"""Proves from a trace of system calls that nothing was told to anybody before it was durable.

Follows every node's journal through the trace: what a write put where, which fdatasync covered it (its entry
comes after the write's return), and whether the segment's name was durable (fsync of the folder after the
rename). Then it looks at everything that leaves a node, at the entry of the call that sends it:

- a reply to a client's write needs its entry durable on a majority, every node counted by its own fdatasync;
- an acknowledgement (AppendReply, HeartbeatReply) needs everything up to its match index durable on its
  sender, an installed snapshot its install record;
- a vote needs the very term and vote durable on its sender;
- no message of the core may carry a term that is not durable on its sender (a question before an election
  excepted: nobody takes its term over);
- a commit index needs a majority that holds everything up to it.

Bytes are decoded by the shipped codec and journal format; the order is that of the trace's lines
(syscall_trace.py says why that proves something). Source: docs/internals/consensus.md, "Journal"; Raft §5.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quorum.platform.os_runtime import OsDisk
from quorum.raft.core.entry import Entry
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    SnapshotChunkReply,
    Vote,
    VoteReply,
)
from quorum.raft.journal.format import (
    PARTIAL_SUFFIX,
    SEGMENT_SUFFIX,
    Place,
    Record,
    SegmentHeader,
    decode_record,
    find_trailers,
    scan_group,
    sequence_of,
)
from quorum.raft.journal.note import NOTE_NAME
from quorum.raft.journal.recovery import scan_journal
from quorum.raft.peers.codec import LENGTH_BYTES, RAFT_MESSAGE_TYPES, Codec, PeerMessage
from quorum.raft.peers.sealing import CHECK_BYTES, TAG_BYTES
from quorum.raft.requests.origins import FORWARDING_MESSAGE_TYPES
from tests.support.syscall_trace import Event, Syscall, TraceError, read_events

#: Each value that a client of the audit writes holds one of these.
MARKER = re.compile(rb"audited-\d{8}")

_HELLO_MAGIC = b"QRTM"
_HELLO_HEADER = struct.Struct(">4sBBH")
#: enough of a frame to know its length
_HEAD_BYTES = _HELLO_HEADER.size
_REPLY = struct.Struct(">iiqi")
_TCP = re.compile(r"TCP:\[127\.0\.0\.1:(\d+)->127\.0\.0\.1:(\d+)\]")
_WRITES = frozenset({"write", "writev", "sendto", "sendmsg", "sendmmsg"})
_POSITIONED = frozenset({"pwrite64", "pwritev", "pwritev2"})


def marker(number: int) -> bytes:
    """What the value of write `number` holds."""
    return b"audited-%08d" % number


@dataclass(frozen=True)
class AuditedNode:
    """Where a node keeps its journal, and its ports."""

    node_id: int
    journal: Path
    client_port: int
    peer_port: int


class _Segment:
    """A file of a journal: its bytes as far as the trace shows them, and what of them is durable."""

    def __init__(self, *, named: bool) -> None:
        self.bytes = bytearray()
        #: whether its name is durable
        self.named = named
        #: groups whose write has returned, and of these the ones that an fdatasync has covered
        self.written: list[list[Record | SegmentHeader]] = []
        self.synced: list[list[Record | SegmentHeader]] = []

    def write(self, offset: int, data: bytes, sequence: int) -> None:
        """Take bytes, and find the groups among them."""
        end = offset + len(data)
        self.bytes.extend(bytes(max(0, end - len(self.bytes))))
        self.bytes[offset:end] = data
        image = bytes(self.bytes)
        for trailer in find_trailers(image, offset, sequence):
            place = Place(sequence, trailer.start, trailer.group, trailer.previous_crc)
            group = scan_group(image, place)
            if group.trailer is None:
                raise TraceError(f"segment {sequence}, byte {trailer.start}: {group.problem}")
            self.written.append([decode_record(image[first:last]) for _, first, last in group.bodies])


class _Journal:
    """One node's journal as the trace shows it."""

    def __init__(self, node: AuditedNode) -> None:
        """Begin with what is there before the first traced write: all of it is taken for durable."""
        self._folder = str(node.journal)
        #: what is durable, as a start of the node would read it
        self.log = scan_journal(OsDisk(), self._folder).log
        self._segments = {segment.path: _Segment(named=True) for segment in self.log.segments}
        #: {thread: what the fsync that it is in covers}
        self._covered: dict[int, list[_Segment]] = {}
        self._covered_groups: dict[int, tuple[_Segment, int]] = {}
        self.fsyncs = 0

    def owns(self, path: str) -> bool:
        """Whether a file or folder belongs to this journal; its note proves nothing, and does not count."""
        return path != f"{self._folder}/{NOTE_NAME}" and f"{path}/".startswith(self._folder + "/")

    def take(self, event: Event) -> list[Entry]:
        """Follow a call on a file or folder of this journal; return entries that were written by it."""
        call = event.call
        if call.name == "fdatasync":
            self._fdatasync(event)
        elif call.name == "fsync":
            self._fsync_folder(event)
        elif event.entered or call.result is None or call.result < 0:
            return []
        elif call.name in _POSITIONED:
            segment = self._segments.setdefault(call.target, _Segment(named=False))
            known = len(segment.written)
            name = Path(call.target).name.removesuffix(PARTIAL_SUFFIX)
            segment.write(call.offset, call.written, sequence_of(name) or 0)
            groups = segment.written[known:]
            return [record for group in groups for record in group if isinstance(record, Entry)]
        elif call.name.startswith("rename"):
            source, target = (text.decode() for text in call.texts)
            self._segments[target] = self._segments.pop(source)
        return []

    def _fdatasync(self, event: Event) -> None:
        thread = event.call.thread
        if event.entered:
            segment = self._segments[event.call.target]
            self._covered_groups[thread] = (segment, len(segment.written))
            return
        segment, count = self._covered_groups.pop(thread)
        if event.call.result == 0:
            self.fsyncs += 1
            segment.synced += segment.written[:count]
            del segment.written[:count]
            self._settle(event.call.target, segment)

    def _fsync_folder(self, event: Event) -> None:
        thread = event.call.thread
        if event.entered:
            self._covered[thread] = [
                segment for path, segment in self._segments.items() if path.endswith(SEGMENT_SUFFIX)
            ]
            return
        covered = self._covered.pop(thread)
        if event.call.result == 0:
            for path, segment in list(self._segments.items()):
                if segment in covered:
                    segment.named = True
                    self._settle(path, segment)

    def _settle(self, path: str, segment: _Segment) -> None:
        """Count the groups that are durable in a file whose name is."""
        if not segment.named:
            return
        for group in segment.synced:
            for record in group:
                if isinstance(record, SegmentHeader):
                    self.log.begin_segment(record.sequence, path, record.group)
                else:
                    self.log.add(record, 0)
        segment.synced.clear()


def _client_frame_end(data: bytes) -> int:
    """Where the first reply ends, 0 if not even its length is there."""
    return 4 + int.from_bytes(data[:4]) if len(data) >= 4 else 0


class _Stream:
    """What a node sends on one connection. A call may take less than it is given; the rest comes again."""

    def __init__(self, frame_end: Callable[[bytes], int]) -> None:
        self._frame_end = frame_end
        #: what was taken and is not a whole frame
        self._rest = b""

    def offer(self, data: bytes) -> list[bytes]:
        """Return the whole frames that a call may send."""
        return self._split(self._rest + data)[0]

    def settle(self, taken: bytes) -> None:
        """The call returned: this much has left."""
        self._rest = self._split(self._rest + taken)[1]

    def _split(self, data: bytes) -> tuple[list[bytes], bytes]:
        frames = []
        position = 0
        while (size := self._frame_end(data[position : position + _HEAD_BYTES])) and position + size <= len(
            data
        ):
            frames.append(data[position : position + size])
            position += size
        return frames, data[position:]


@dataclass
class Audit:
    """What an audit looked at and found."""

    checked: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def check(self, what: str, fine: bool, line: int, story: str) -> None:
        """Count a look, and note a violation."""
        self.checked[what] += 1
        if not fine:
            self.violations.append(f"line {line}: {what}: {story}")


class FsyncAudit:
    """Follows a trace and checks each thing that leaves a node."""

    def __init__(self, nodes: Mapping[int, AuditedNode]) -> None:
        """Read the journals as they are: make it once the trace runs and nothing is being written."""
        self.result = Audit()
        self._journals = {node_id: _Journal(node) for node_id, node in nodes.items()}
        self._majority = len(nodes) // 2 + 1
        self._clients = {node.client_port: node.node_id for node in nodes.values()}
        self._peers = {node.peer_port: node.node_id for node in nodes.values()}
        self._codec = Codec({**RAFT_MESSAGE_TYPES, **FORWARDING_MESSAGE_TYPES})
        #: {label of the socket: what left on it}
        self._streams: dict[str, _Stream] = {}
        #: {marker: (index, term) of the entries that hold it}
        self._entries: dict[bytes, set[tuple[int, int]]] = {}

    def run(self, trace: Path, writes: Mapping[tuple[int, int], bytes]) -> Audit:
        """Check a whole trace.

        Args:
            trace: the output of a SyscallTrace.
            writes: {(local port of the client's connection, xid): the marker in its value} of all writes that
                were acknowledged.

        Raises:
            TraceError: the trace shows bytes that cannot be read; nothing is proven then.
        """
        open_writes = dict(writes)
        for event in read_events(trace):
            call = event.call
            if call.name in _WRITES:
                self._take_sent(event, open_writes)
                continue
            path = call.target or call.texts[0].decode()
            for journal in self._journals.values():
                if journal.owns(path):
                    self._take_entries(journal.take(event))
        if open_writes:
            raise TraceError(f"the trace does not show the replies to {len(open_writes)} acknowledged writes")
        self.result.checked["fdatasync"] = sum(journal.fsyncs for journal in self._journals.values())
        return self.result

    def _take_entries(self, entries: list[Entry]) -> None:
        for entry in entries:
            for found in MARKER.findall(entry.payload):
                self._entries.setdefault(found, set()).add((entry.index, entry.term))

    def _take_sent(self, event: Event, writes: dict[tuple[int, int], bytes]) -> None:
        """Check what a node sends, as soon as it enters the call; answered writes leave `writes`."""
        ports = _TCP.fullmatch(event.call.target)
        if ports is None:
            return
        local, remote = int(ports[1]), int(ports[2])
        if remote in self._peers:
            stream = self._streams.setdefault(event.call.target, _Stream(self._peer_frame_end))
        elif local in self._clients:
            stream = self._streams.setdefault(event.call.target, _Stream(_client_frame_end))
        else:
            return
        if not event.entered:
            stream.settle(event.call.written)
            return
        for frame in stream.offer(b"".join(event.call.texts)):
            if remote in self._peers:
                self._take_peer_frame(event.line, frame)
            elif len(frame) >= _REPLY.size:
                _, xid, _zxid, error = _REPLY.unpack_from(frame)
                if error == 0 and (remote, xid) in writes:
                    self._check_reply(event.line, event.call, writes.pop((remote, xid)))

    # --- replies to clients -----------------------------------------------------------------------

    def _check_reply(self, line: int, call: Syscall, written: bytes) -> None:
        places = self._entries.get(written, set())
        holders = max((self._holders(index, term) for index, term in places), default=[], key=len)
        self.result.check(
            "client reply",
            len(holders) >= self._majority,
            line,
            f"{call.target} answers {written.decode()}, entry {sorted(places)}, durable on {holders} only",
        )

    def _holders(self, index: int, term: int) -> list[int]:
        """Nodes on which an entry is durable."""
        return [
            node_id
            for node_id, journal in self._journals.items()
            if journal.log.last_index >= index and journal.log.term_at(index) in (term, None)
        ]

    # --- messages between nodes -------------------------------------------------------------------

    def _peer_frame_end(self, data: bytes) -> int:
        """Where the first frame ends, 0 if not even its length is there."""
        if len(data) < _HELLO_HEADER.size:
            return 0
        if data.startswith(_HELLO_MAGIC):
            return _HELLO_HEADER.size + int(_HELLO_HEADER.unpack_from(data)[3])
        return CHECK_BYTES + LENGTH_BYTES + self._codec.frame_bytes(data, CHECK_BYTES) + TAG_BYTES

    def _take_peer_frame(self, line: int, frame: bytes) -> None:
        if not frame.startswith(_HELLO_MAGIC):
            self._check_message(line, self._codec.decode(frame[CHECK_BYTES + LENGTH_BYTES : -TAG_BYTES]))

    def _check_message(self, line: int, message: PeerMessage) -> None:
        if not isinstance(message, Message):
            return
        log = self._journals[message.sender].log
        hard_state, last_index = log.hard_state, log.last_index
        check = self.result.check
        asks = isinstance(message, Vote) and message.pre
        check("term", asks or message.term <= hard_state.term, line, f"{message}, durable {hard_state}")
        match message:
            case AppendReply(rejected=False, match_index=index) | HeartbeatReply(match_index=index):
                check("acknowledgement", index <= last_index, line, f"{message}, durable {last_index}")
            case SnapshotChunkReply(installed=True, match_index=index):
                reached = max(last_index, log.install.log_index)
                check("installed snapshot", index <= reached, line, f"{message}, durable {reached}")
            case VoteReply(pre=False, granted=True):
                wanted = HardState(message.asked_term, message.receiver)
                check("vote", hard_state == wanted, line, f"{message}, durable {hard_state}")
            case Append(commit_index=index) | Heartbeat(commit_index=index):
                self._check_commit(line, message, index)
            case _:
                pass

    def _check_commit(self, line: int, message: Append | Heartbeat, index: int) -> None:
        """The sender leads: its own log says which term the committed entry is of."""
        term = self._journals[message.sender].log.term_at(index)
        holders = [
            node_id
            for node_id, journal in self._journals.items()
            if journal.log.last_index >= index and term in (journal.log.term_at(index), None)
        ]
        story = f"{type(message).__name__} of node {message.sender} says {index}, durable on {holders} only"
        self.result.check("commit index", len(holders) >= self._majority, line, story)
