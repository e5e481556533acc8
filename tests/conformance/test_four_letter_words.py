"""The four-letter words have a real ZooKeeper's lines: every word, on a leader, a follower, one alone.

Both systems are brought into the same state (a session per node, nodes, ephemerals, watches), each with one
raw connection per session, so that nothing pings or reads in between. Numbers, addresses, folders and dates
become a word; session ids become the number of the node. What is said about that state, in numbers too, must
be equal. `DIFFERENCES` lists all that is not, and a row in it that no longer differs fails as well.
Source: ZooKeeper administrator's guide 3.9 (the four letter words).
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
import uvloop

from tests.conformance.differential.access import OPEN
from tests.conformance.differential.clusters import quorate, zookeeper
from tests.conformance.differential.link import Side
from tests.conformance.differential.wire import Op, Request
from tests.support.nodes import eventually
from tests.support.zookeeper import four_letter_word

#: words whose answers hold numbers that must be equal
EXACT: Final = frozenset({"ruok", "isro", "wchs", "wchc", "wchp", "crst", "srst"})
DEADLINE_S: Final = 30.0
#: rows of mntr about the state that both are in
EQUAL_ROWS: Final = (
    *("server_state", "peer_state", "ephemerals_count", "outstanding_requests", "global_sessions"),
    *("local_sessions", "watch_count", "learners", "synced_followers", "quorum_size", "connection_rejected"),
)
#: The last ones reset what the others count.
WORDS: Final = (
    *("ruok", "isro", "srvr", "stat", "mntr", "conf", "cons", "dump", "envi", "dirs"),
    *("wchs", "wchc", "wchp", "hash", "gtmk", "stmk", "crst", "srst"),
)
#: {what stands for it: what differs by nature}, replaced in this order
MASKS: Final = {
    "VERSION": r"3\.9\.5-[^\n]*",
    "DATE": r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d UTC \d{4}",
    "HEX": r"0x[0-9a-f]+|(?<=version=)[0-9a-f]+",
    "PATH": r"(?<=[dD]ir=)/[^\n]*|(?<=data\.dir=)/[^\n]*",
    "HOST": r"(?<=host\.name=)[^\n]*",
    "N": r"(?<![a-z\d])\d+(\.\d+)?",
}
#: their order is nobody's promise
UNORDERED: Final = frozenset({"stat", "cons", "mntr", "dump", "wchc", "wchp"})

_SUMMARIES: Final = r"zk_(avg|min|max|cnt|sum|p50|p95|p99|p999)_(?!latency\b|file_)\w+\tN"


class Difference(NamedTuple):
    """Lines of a word that only one of the two has, or both in numbers that mean nothing."""

    word: str
    #: what a masked line of it matches as a whole
    line: str
    reason: str
    whose: str = "ZooKeeper"


def _rows(reason: str, *names: str) -> Iterator[Difference]:
    """Rows of mntr that only ZooKeeper has."""
    yield from (Difference("mntr", rf"zk_{name}\tN", reason) for name in names)


#: the reasons stand in DIVERGENCES.md as well
DIFFERENCES: Final = (
    Difference("srvr", r"Proposal sizes last/min/max: N/N/N", "writes are proposed in batches"),
    Difference("stat", r"Proposal sizes last/min/max: N/N/N", "writes are proposed in batches"),
    Difference("conf", r"(initLimit|syncLimit|electionAlg)=N", "elections are Raft's"),
    Difference("conf", r"(electionPort|quorumPort|peerType)=N", "the line of the member has them"),
    Difference("envi", r"java\.[^\n]+|os\.memory\.[^\n]+", "no Java"),
    Difference("envi", r"python\.version=[^\n]+", "Python in Java's place", whose="Quorate"),
    Difference("envi", r"data\.dir=PATH", "in place of java.io.tmpdir and the class path", whose="Quorate"),
    Difference("envi", r"os\.arch=[^\n]+", "Java has names of its own for it", whose="both"),
    Difference("gtmk", r"N", "there is no trace mask: no word at all"),
    Difference("gtmk", r"", "there is no trace mask: no word at all", whose="Quorate"),
    Difference("hash", r"This ZooKeeper [^\n]*", "nodes compare their digests by themselves: no word"),
    Difference("hash", r"", "nodes compare their digests by themselves: no word", whose="both"),
    Difference("dump", r"Connections Sets \(N\)/\(N\):", "connections have no deadlines", whose="both"),
    Difference("dump", r"N expire at DATE:", "deadlines fall together by chance", whose="both"),
    Difference("dump", r"Session Sets \(N\)/\(N\):", "deadlines fall together by chance", whose="both"),
    Difference(
        "mntr", r"zk_followers\tN", "the name that the row of learners had before 3.6", whose="Quorate"
    ),
    Difference("mntr", _SUMMARIES, "stages of ZooKeeper's pipeline; ours are at /metrics"),
    *_rows(
        "queues and stages of ZooKeeper's pipeline; ours are at /metrics",
        *("commit_count", "learner_commit_received_count", "learner_proposal_received_count"),
        *("outstanding_changes_queued", "outstanding_changes_removed", "prep_processor_request_queued"),
        *("proposal_count", "last_proposal_size", "quit_leading_due_to_disloyal_voter", "leader_uptime"),
        *("request_commit_queued", "requests_not_forwarded_to_commit_processor", "pending_syncs"),
        *("revalidate_count", "connection_revalidate_count", "sync_processor_request_queued"),
        *("skip_learner_request_to_next_processor_count", "unrecoverable_error_count", "diff_count"),
        *("snap_count", "snapshot_error_count", "snapshot_rate_limited_count", "digest_mismatches_count"),
        *("restore_error_count", "restore_rate_limited_count", "looking_count"),
    ),
    *_rows(
        "throttling and the cache of answers, which are not built",
        *("connection_drop_count", "connection_drop_probability", "request_throttle_wait_count"),
        *("response_packet_cache_hits", "response_packet_cache_misses", "throttled_ops", "stale_requests"),
        *("response_packet_get_children_cache_hits", "response_packet_get_children_cache_misses"),
        *("stale_requests_dropped", "stale_replies", "large_requests_rejected"),
    ),
    *_rows(
        "watches that are cleaned up later, and watches as bits",
        *("add_dead_watcher_stall_time", "dead_watchers_cleared", "dead_watchers_queued", "watch_bytes"),
    ),
    *_rows(
        "SASL between servers, TLS of clients and ZooKeeper's admin server, which are not there",
        *("auth_failed_count", "ensemble_auth_fail", "ensemble_auth_skip", "ensemble_auth_success"),
        *("insecure_admin_count", "non_mtls_local_conn_count", "non_mtls_remote_conn_count"),
        *("outstanding_tls_handshake", "tls_handshake_exceeded", "unsuccessful_handshake"),
    ),
    *_rows(
        "counts of connections and bytes; ours are at /metrics",
        *("bytes_received_count", "response_bytes", "last_client_response_size", "connection_request_count"),
        *("cnxn_closed_without_zk_server_running", "sessionless_connections_expired"),
        "stale_sessions_expired",
    ),
    *_rows("observers, which are not there", "synced_observers", "synced_non_voting_followers"),
)


async def in_a_state(side: Side) -> tuple[list[dict[str, str]], dict[int, str]]:
    """Bring a system into the state, and ask its leader and a follower all words; then the leader alone.

    Returns:
        The answers of each, and {session id: its name}.
    """
    await side.open()
    leading, following, other = side.observers
    whose = ("the leader's session", "the follower's session", "the third session")
    names = {each.session_id: name for each, name in zip(side.observers, whose, strict=True)}
    made = await leading.ask(
        *(Request(Op.CREATE, (path, b"x", OPEN, 0)) for path in ("/app", "/app/a", "/app/b")),
        Request(Op.CREATE, ("/app/first", b"", OPEN, 1)),
        Request(Op.CREATE, ("/app/second", b"", OPEN, 1)),
    )
    made += await following.ask(Request(Op.CREATE, ("/app/third", b"", OPEN, 1)))
    assert [reply.err for reply in made] == [0] * 6
    for observer in (leading, following, other):
        await observer.reach(made[-1].zxid)
        await observer.ask(
            Request(Op.GET_CHILDREN, ("/app", True)),
            Request(Op.EXISTS, ("/app/later", True)),
            Request(Op.GET_DATA, ("/app/a", True)),
        )
    await following.ask(Request(Op.GET_DATA, ("/app/b", True)))
    answers = [
        {word: await asyncio.to_thread(four_letter_word, port, word) for word in WORDS}
        for port in side.ports[:2]
    ]
    await side.close()
    for node in (1, 2):
        await asyncio.to_thread(side.kill, node)
    alone = side.ports[0]
    await asyncio.to_thread(
        eventually,
        lambda: "not currently serving" in four_letter_word(alone, "srvr"),
        DEADLINE_S,
        f"{side.name} has lost its majority",
    )
    answers.append({word: await asyncio.to_thread(four_letter_word, alone, word) for word in WORDS})
    return answers, names


def comparable(word: str, answer: str, names: dict[int, str]) -> list[str]:
    """Return the lines of an answer, made equal where they differ by nature."""
    for session_id, name in names.items():
        answer = re.sub(
            rf"(sid=|Id: |^\t?)0x{session_id & (2**64 - 1):x}\b", rf"\1{name}", answer, flags=re.MULTILINE
        )
    if word == "wchp":
        # paths and the sessions below them, each in an order of its own
        blocks = re.findall(r"^(\S.*\n)((?:\t.*\n)*)", answer, re.MULTILINE)
        answer = "".join(head + "".join(sorted(below.splitlines(keepends=True))) for head, below in blocks)
    if word not in EXACT:
        for mask, pattern in MASKS.items():
            answer = re.sub(pattern, mask, answer)
    lines = answer.split("\n")
    return sorted(lines) if word in UNORDERED else lines


def without(word: str, lines: list[str], whose: str) -> list[str]:
    """Leave the lines out that are known to differ."""
    known = [each.line for each in DIFFERENCES if each.word == word and each.whose in (whose, "both")]
    return [line for line in lines if not any(re.fullmatch(each, line) for each in known)]


Told = list[tuple[list[dict[str, str]], dict[int, str]]]


@pytest.fixture(scope="module")
def told() -> Told:
    """What ZooKeeper said, and what Quorate said: its leader first."""
    with zookeeper() as theirs, quorate() as ours:
        return [uvloop.run(in_a_state(side)) for side in (theirs, ours)]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("node", [0, 1, 2], ids=["leader", "follower", "alone"])
def test_a_word_has_zookeepers_lines(told: Told, word: str, node: int) -> None:
    theirs, ours = (comparable(word, answers[node][word], names) for answers, names in told)
    if word in ("stat", "cons"):
        # the connection that asked before may be there still
        theirs, ours = sorted(set(theirs)), sorted(set(ours))
    assert without(word, ours, "Quorate") == without(word, theirs, "ZooKeeper")


@pytest.mark.parametrize("node", [0, 1], ids=["leader", "follower"])
def test_mntr_tells_the_same_of_the_same_state(told: Told, node: int) -> None:
    theirs, ours = (
        dict(re.findall(r"^zk_(\w+)\t(.*)$", answers[node]["mntr"], re.MULTILINE)) for answers, _ in told
    )
    assert {name: ours.get(name) for name in EQUAL_ROWS} == {name: theirs.get(name) for name in EQUAL_ROWS}


def test_every_difference_that_is_listed_is_one(told: Told) -> None:
    seen: Counter[Difference] = Counter()
    for (answers, names), whose in zip(told, ("ZooKeeper", "Quorate"), strict=True):
        for node in answers:
            for each in DIFFERENCES:
                if each.whose in (whose, "both"):
                    lines = comparable(each.word, node[each.word], names)
                    seen[each] += any(re.fullmatch(each.line, line) for line in lines)
    assert [each for each in DIFFERENCES if not seen[each]] == []
