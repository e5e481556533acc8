"""The table of a node's endpoints: every one but those that a broker's admin port has, too.

A new endpoint is one row here and its handler. Decides nothing else. No state.

Source: docs/http.md.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from quorum.admin import changelog, commands, events, groups, members, past, snapshots, state, typed, znodes
from quorum.admin.endpoint import BOOLEAN, INTEGER, OBJECT, STRING, AdminEndpoint, Schema, fields, list_of
from quorum.admin.members import NODE_ID_MAX
from quorum.admin.parameters import Parameter, read_query
from quorum.admin.view import STATUS_VIEW, json_answer
from quorum.changelog.rows import JSON_LINES, MSGPACK

_NODE_ID: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": NODE_ID_MAX}
_MEMBER: Final = Parameter("node_id", int, "the member", None, 1, NODE_ID_MAX)
_LEADER_BODY: Final[Schema] = {**fields(node_id=_NODE_ID), "additionalProperties": False}
_MEMBER_BODY: Final[Schema] = {
    "type": "object",
    "properties": {
        "node_id": _NODE_ID,
        "address": STRING,
        "replace": {"const": True},
        "incarnation": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "force": BOOLEAN,
    },
    "required": ["node_id"],
    "additionalProperties": False,
}
_CHANGED: Final = fields(log_index=INTEGER, members=list_of(OBJECT))
_TAKEN: Final = fields(log_index=INTEGER)
_EMPTY_BODY: Final[Schema] = {"type": "object", "additionalProperties": False}


async def _get_members(request: web.Request) -> web.Response:
    read_query(request, ())
    return json_answer({"items": request.app[STATUS_VIEW].status()["members"]})


async def _get_leader(request: web.Request) -> web.Response:
    read_query(request, ())
    status = request.app[STATUS_VIEW].status()
    return json_answer({"leader_id": status["leader_id"], "term": status["term"]})


_MEMBERS: Final = (
    AdminEndpoint("GET", "/v1/leader", _get_leader, "Who leads", answer=state.LEADER),
    AdminEndpoint(
        *("POST", "/v1/leader", members.post_leader, "Hand leadership to a voter"),
        body=_LEADER_BODY,
        answer=state.LEADER,
    ),
    AdminEndpoint("GET", "/v1/members", _get_members, "The members", answer=fields(items=list_of(OBJECT))),
    AdminEndpoint(
        *("POST", "/v1/members", members.post_members, "Add a node, or replace a member's disk"),
        body=_MEMBER_BODY,
        answer=_CHANGED,
    ),
    AdminEndpoint(
        *("DELETE", "/v1/members", members.delete_members, "Remove a member", (_MEMBER,)), answer=_CHANGED
    ),
)
_NODE: Final = (
    AdminEndpoint(
        *("POST", "/v1/snapshot", snapshots.post_snapshot, "Take a snapshot, as POST /v1/snapshots"),
        body=_EMPTY_BODY,
        optional_body=True,
        answer=_TAKEN,
        status=(202,),
    ),
    AdminEndpoint(
        *("POST", "/v1/snapshots", snapshots.post_snapshot, "Take a snapshot of this node's state"),
        body=_EMPTY_BODY,
        optional_body=True,
        answer=_TAKEN,
        status=(202,),
    ),
    AdminEndpoint(
        "GET", "/v1/snapshots", state.get_snapshots, "This node's snapshots", answer=state.SNAPSHOTS
    ),
    AdminEndpoint(
        *("GET", "/v1/snapshots/{name}", state.get_snapshot_file),
        "The file of a snapshot, with another session key; for operators",
        places=(state.SNAPSHOT_NAME,),
        content=("application/octet-stream",),
        operators=True,
    ),
    AdminEndpoint(
        "GET", "/v1/journal", state.get_journal, "Where journal and history begin", answer=state.JOURNAL
    ),
    AdminEndpoint("GET", "/v1/config", state.get_config, "The settings, secrets masked", answer=state.CONFIG),
    AdminEndpoint(
        *("GET", "/v1/sessions", state.get_sessions, "Sessions of the cluster"),
        (state.LIMIT, state.AFTER_ID),
        answer=state.SESSIONS,
    ),
    AdminEndpoint(
        *("GET", "/v1/connections", state.get_connections, "Client connections of this node"),
        (state.LIMIT, state.AFTER_ID),
        answer=state.CONNECTIONS,
    ),
    AdminEndpoint(
        *("GET", "/v1/watches", state.get_watches, "What clients of this node watch"),
        (state.LIMIT, state.AFTER_NAME),
        answer=state.WATCHES,
    ),
)
_ZNODES: Final = (
    AdminEndpoint("GET", "/v1/znodes", znodes.get_znode, "Read a znode", znodes.READ, answer=znodes.NODE),
    AdminEndpoint(
        *("PUT", "/v1/znodes", znodes.put_znode, "Write a znode", znodes.WRITE),
        body=znodes.PUT_BODY,
        answer=znodes.WRITTEN,
    ),
    AdminEndpoint(
        *("DELETE", "/v1/znodes", znodes.delete_znode, "Delete a znode", znodes.DELETE),
        answer=znodes.DELETED,
    ),
    AdminEndpoint(
        *("POST", "/v1/transactions", znodes.post_transaction, "Carry out all of some operations, or none"),
        body=znodes.TRANSACTION_BODY,
        answer=znodes.TRANSACTION_ANSWER,
    ),
)
_METADATA: Final = (
    AdminEndpoint("GET", "/v1/cluster", typed.get_cluster, "Controller and totals", answer=typed.CLUSTER),
    AdminEndpoint(
        *("GET", "/v1/brokers", typed.get_brokers, "Brokers and their generations"),
        (state.LIMIT, state.AFTER_ID),
        answer=typed.BROKERS,
    ),
    AdminEndpoint(
        *("GET", "/v1/topics", typed.get_topics, "Topics and their partitions"),
        (state.LIMIT, state.AFTER_NAME, typed.PREFIX, typed.UNDER_REPLICATED),
        answer=typed.TOPICS,
    ),
    AdminEndpoint(
        *("GET", "/v1/groups", groups.get_groups, "Consumer groups, their members and offsets"),
        (state.LIMIT, state.AFTER_NAME, typed.PREFIX),
        answer=groups.GROUPS,
    ),
)
_HISTORY: Final = (
    AdminEndpoint(
        *("GET", "/v1/changelog", changelog.get_changelog, "Committed transactions from a zxid on"),
        changelog.PARAMETERS,
        content=(JSON_LINES, MSGPACK),
    ),
    AdminEndpoint(
        *("GET", "/v1/changelog/tree", past.get_tree, "All znodes as they were behind a transaction"),
        past.TREE_PARAMETERS,
        answer=past.TREE,
    ),
    AdminEndpoint(
        *("GET", "/v1/events", events.get_events, "Committed transactions as they come"),
        events.PARAMETERS,
        content=("text/event-stream",),
    ),
)
_COMMANDS: Final = (
    AdminEndpoint("GET", "/commands", commands.get_commands, "ZooKeeper's commands", answer=commands.LIST),
    AdminEndpoint(
        *(
            "GET",
            "/commands/{name}",
            commands.get_command,
            "A command, as ZooKeeper answers it",
        ),
        places=(commands.NAME,),
        answer=commands.ANSWER,
    ),
)
#: every endpoint of a node that no broker has
NODE_ENDPOINTS: Final = (*_MEMBERS, *_NODE, *_ZNODES, *_METADATA, *_HISTORY, *_COMMANDS)
