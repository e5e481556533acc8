"""How transcripts write what Raft's core hands out: one line each.

An entry is written ``3:t2 x``: index 3, term 2, payload x.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorum.raft.core.configuration import Configuration, parse_configuration
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry, EntryKind
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    Persist,
    Role,
    SnapshotChunk,
    SnapshotChunkReply,
    SoftState,
    TimeoutNow,
    Vote,
    VoteReply,
)
from quorum.raft.core.status import Status


def members(configuration: Configuration) -> str:
    """Write who is in the cluster."""
    voters = f"voters {_ids(configuration.voters)}"
    learners = f", learner {_ids(configuration.learners)}" if configuration.learners else ""
    return voters + learners


def _ids(nodes: Iterable[int]) -> str:
    return " ".join(map(str, nodes))


def entry(each: Entry, *, brief: bool = False) -> str:
    """Write one entry, with the members that it names unless it is to be brief."""
    if each.kind is EntryKind.NOOP:
        content = "no-op"
    elif each.kind is EntryKind.FOUND:
        content = "founding"
    elif each.kind in CONFIGURATION_KINDS:
        content = each.kind.name.lower()
        content += "" if brief else f" ({members(parse_configuration(each.payload))})"
    else:
        content = each.payload.decode()
    return f"{each.index}:t{each.term} {content}"


def entries(several: Iterable[Entry]) -> str:
    """Write entries in a row."""
    return ", ".join(map(entry, several))


def message(sent: Message) -> str:
    """Write a message as its sender says it."""
    return f"{sent.sender} -> {sent.receiver}  {_content(sent)}"


def _content(sent: Message) -> str:
    match sent:
        case Append(prev_index=index, prev_term=term, commit_index=commit, entries=several):
            what = entries(several) if several else "nothing new"
            return f"append after {index}:t{term}: {what}; commit {commit}"
        case AppendReply(rejected=True):
            hint = f"{sent.hint_index}:t{sent.hint_term}"
            return f"term {sent.term}: nothing fits after {sent.prev_index}, perhaps after {hint}"
        case AppendReply():
            return f"term {sent.term}: durable up to {sent.match_index}"
        case Heartbeat():
            return f"heartbeat of term {sent.term}, commit {sent.commit_index}"
        case HeartbeatReply():
            return f"heard in term {sent.term}, durable up to {sent.match_index}"
        case Vote():
            question = "would you vote" if sent.pre else "vote"
            handed = ", the leader hands over" if sent.transfer else ""
            return f"{question} for me in term {sent.term}? my log ends at {_end(sent)}{handed}"
        case VoteReply():
            answer = "yes" if sent.granted else "no"
            if sent.pre:
                answer += ", I would" if sent.granted else ", I would not"
            return f"{answer}, in term {sent.asked_term}; I am in term {sent.term}"
        case SnapshotChunk():
            part = "" if len(sent.data) == sent.total_bytes else f", from byte {sent.offset}"
            return f"snapshot up to {sent.snapshot_index}:t{sent.snapshot_term}{part}"
        case SnapshotChunkReply(installed=True):
            return f"the snapshot is installed, durable up to {sent.match_index}"
        case SnapshotChunkReply():
            return "the snapshot failed" if sent.rejected else f"the snapshot from byte {sent.offset}, please"
        case TimeoutNow():
            return f"campaign at once, I lead term {sent.term} no longer than that"


def _end(vote: Vote) -> str:
    return f"{vote.last_index}:t{vote.last_term}"


def persist(node_id: int, group: Persist) -> str:
    """Write what goes to the journal as one group."""
    parts = []
    if group.hard_state is not None:
        vote = f", vote for {group.hard_state.voted_for}" if group.hard_state.voted_for else ", no vote"
        parts.append(f"term {group.hard_state.term}{vote}")
    if group.entries:
        parts.append(entries(group.entries))
    return f"{node_id} writes {'; '.join(parts)}"


def soft_state(node_id: int, state: SoftState) -> str:
    """Write what a node is now."""
    role = state.role.value.replace("_", "-")
    follows = f" of {state.leader_id or 'nobody'}" if state.role is Role.FOLLOWER else ""
    handing = f", handing over to {state.transfer_target}" if state.transfer_target else ""
    return f"{node_id} is {role}{follows} in term {state.term}{handing}"


def status(shown: Status, log: Iterable[Entry]) -> str:
    """Write where a node is."""
    role = shown.role.value.replace("_", "-")
    durable = f", durable up to {shown.durable_index}" if shown.durable_index < shown.last_index else ""
    return (
        f"{shown.node_id}: {role} in term {shown.term}, commit {shown.commit_index}{durable}, "
        f"log {', '.join(entry(each, brief=True) for each in log) or 'empty'}"
    )
