"""ZooKeeper's own shell prints the same lines for the same commands on a real ZooKeeper and on Quorate.

Only what differs by nature is made equal: zxids become their rank, session ids, times and ports a word; the
events of watches, which a thread of their own prints, are compared as a list of their own. Source: ZooKeeper
CLI guide 3.9.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from tests.support.java import java_command
from tests.support.nodes import System, ZooKeeperNodes

SHELL = "org.apache.zookeeper.ZooKeeperMain"
DEADLINE_S = 60.0
PRINTED_MIN = 200

COMMANDS = """
create /app data
create -s /app/seq- one
create -s /app/seq- two
create -e /app/temporary here
create -e -s /app/member- x
create -c /app/box
create -t 60000 /app/expiring soon
create -s -t 60000 /app/expiring- soon
create /app/no-data
create /app
create /nowhere/child x
create /app/temporary/child x
create app x
get /app
get -s /app/expiring
get -s /app/temporary
get -b /app
get /app/no-data
get -w /app
set -s /app changed
set -v 1 /app twice
set -v 1 /app stale
set -v 3 /app early
set /nowhere x
get -s /app
stat -w /app/later
create /app/later
stat /app/later
stat /nowhere
stat /app/box
ls /app
ls -s /app
ls -w /app
create /app/deep
create /app/deep/one
create /app/deep/one/two
ls -R /app
ls /nowhere
getAllChildrenNumber /app
getAllChildrenNumber /nowhere
getEphemerals
getEphemerals /app
getEphemerals /app/deep
delete -v 1 /app/later
delete -v 0 /app/later
delete /app/deep
deleteall /app/deep
deleteall -b 2 /app/deep
delete /app/deep
delete /
create /hidden secret digest:alice:MmX18g5W0tMX0iMQ4Tu8a9RdqOQ=:cdrwa
get /hidden
getAcl /hidden
whoami
addauth digest alice:secret
whoami
get /hidden
create /guarded secret auth::cdrwa
create /local x ip:127.0.0.0/8:cdrwa
get /local
getAcl -s /guarded
getAcl /app
setAcl -s /app world:anyone:cdrwa
setAcl -v 9 /app world:anyone:r
setAcl /app world:anyone:cdra
set /app denied
setAcl /app world:anyone:cdrwa
setAcl -R /app world:anyone:cdrwa
setAcl /app nonsense
addWatch /app
create /app/seen a
set /app/seen b
delete /app/seen
removewatches /app
addWatch -m PERSISTENT /app
create /app/other
removewatches /app/nothing
removewatches -a /app
get -w /app
removewatches -d /app
ls -w /app
removewatches -c /app
sync /app
sync /nowhere
config
config -c
reconfig -remove 9
printwatches off
history
nonsense
deleteall /app
deleteall /guarded
deleteall /hidden
deleteall /local
ls /
close
get /hidden
quit
"""


@dataclass(frozen=True)
class Printed:
    """What the shell printed: lines in order, and the events of watches in their own order."""

    lines: list[str]
    events: list[str]


def printed_by(host: str, commands: str = COMMANDS) -> Printed:
    """Run the shell at a server."""
    done = subprocess.run(
        java_command(SHELL, "-server", host, "-timeout", "10000"),
        input=commands,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return normalized(done.stdout)


def normalized(text: str) -> Printed:
    """Make equal what differs by nature, and part the events from the rest."""
    text = re.sub(r"(?m)^((?:c|m)time = ).*$", r"\1TIME", text)
    text = re.sub(r"(?m)^(ephemeralOwner = 0x)0*[1-9a-f][0-9a-f]*$", r"\1SESSION", text)
    text = re.sub(r"127\.0\.0\.1:\d+(:\d+)?", "ADDRESS", text)
    text = re.sub(r"(?m)^version=\w+$|^\w+ (,*)$", r"version=ZXID \1", text)
    # a set, whose order says nothing
    text = text.replace("ip: 127.0.0.1\ndigest: alice\n", "digest: alice\nip: 127.0.0.1\n")
    found = [int(each, 16) for each in re.findall(r"Zxid = (0x\w+)", text)]
    found += [int(each) for each in re.findall(r"zxid: (\d+)", text)]
    rank = {zxid: number for number, zxid in enumerate(sorted({0, *found}))}
    text = re.sub(r"Zxid = (0x\w+)", lambda match: f"Zxid = {rank[int(match[1], 16)]}", text)
    text = re.sub(r"zxid: (\d+)", lambda match: f"zxid: {rank[int(match[1])]}", text)
    lines = [line for line in text.splitlines() if line and line != "WATCHER::"]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return Printed([line for line in lines if line not in events], events)


def test_zookeepers_shell_prints_the_same_lines(nodes: System) -> None:
    theirs = ZooKeeperNodes()
    try:
        theirs.start()
        expected = printed_by(theirs.host(1))
    finally:
        theirs.close()
    printed = printed_by(nodes.host(nodes.node_ids[0]))
    assert len(expected.lines) > PRINTED_MIN
    assert len(expected.events) > 10
    assert printed.lines == expected.lines
    assert printed.events == expected.events
