"""The smallest mending of each defect, for the controls: what a seed found must be gone with it.

Each replaces single lines of the private copy. They say what the defect is, not how it should be repaired in
the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tests.simulation.stock.loader import Fix, StockCopy
from tests.simulation.stock.stock_node import Entry


def _matching(held: list[Any], new: list[Any]) -> int:
    """Return how many of the new entries stand in the log already, by index and term."""
    count = 0
    for one, other in zip(held, new, strict=False):
        if one[1:] != other[1:]:
            break
        count += 1
    return count


def _total(apply: Callable[[Any], Any], command: Any) -> Any:
    """Apply a command; one that raises has the error as its result."""
    try:
        return apply(command)
    except ArithmeticError as error:
        return error


def _whole(data: Any, stream: Any) -> Any:
    """Read a stream to its end, where its checksum stands, and return what was read before."""
    stream.read()
    return data


def _begin_with(log: Any, previous: Entry, last: Entry) -> None:
    """Have a log begin with a snapshot's last two entries; if it has the last one, what follows stays."""
    held = [entry for entry in log[:] if entry[1] >= last[1]]
    tail = held[1:] if held and held[0][1:] == last[1:] else []
    log.rewrite([previous, last, *tail])


FIXES = {
    fix.defect: fix
    for fix in (
        # an append that proves nothing raises nothing
        Fix(
            "D1",
            (
                (
                    "syncobj",
                    "if leaderCommitIndex > self.__raftCommitIndex:",
                    "if 'prevLogIdx' in message and leaderCommitIndex > self.__raftCommitIndex:",
                ),
            ),
        ),
        # a follower deletes only from the first conflict on
        Fix(
            "D2",
            (
                (
                    "syncobj",
                    "self.__deleteEntriesFrom(prevLogIdx + 1)",
                    (
                        "if (held := matching(prevEntries[1:], newEntries)) < len(newEntries): "
                        "self.__deleteEntriesFrom(prevLogIdx + 1 + held)"
                    ),
                ),
                (
                    "syncobj",
                    "self.__raftLog.add(*entry)",
                    "entry[1] <= self.__getCurrentLogIndex() or self.__raftLog.add(*entry)",
                ),
                (
                    "syncobj",
                    "min(leaderCommitIndex, self.__getCurrentLogIndex())",
                    (
                        "min(leaderCommitIndex, nextNodeIdx - 1 if 'prevLogIdx' in message"
                        " else self.__getCurrentLogIndex())"
                    ),
                ),
            ),
            helpers=(("matching", _matching),),
        ),
        # an acknowledgement carries its term, another one's is ignored
        Fix(
            "D3",
            (
                (
                    "syncobj",
                    "'type': 'next_node_idx',",
                    "'type': 'next_node_idx', 'term': self.__raftCurrentTerm,",
                ),
                (
                    "syncobj",
                    "if message['type'] == 'next_node_idx':",
                    "if message['type'] == 'next_node_idx' and message['term'] == self.__raftCurrentTerm:",
                ),
            ),
        ),
        # compaction happens or not, as if written aside and renamed
        Fix("D5", whole_compaction=True),
        # apply is total
        Fix(
            "D6",
            (
                (
                    "syncobj",
                    "res = self.__doApplyCommand(entry[0])",
                    "res = total(self.__doApplyCommand, entry[0])",
                ),
            ),
            helpers=(("total", _total),),
        ),
        # a snapshot is read to its end, where the checksum stands
        Fix(
            "D10",
            (
                (
                    "serializer",
                    "with gzip.GzipFile(fileobj=f) as g:\n                    return pickle.load(g)",
                    "with gzip.GzipFile(fileobj=f) as g: return whole(pickle.load(g), g)",
                ),
            ),
            helpers=(("whole", _whole),),
        ),
        # what was not loaded is not acknowledged and raises nothing
        Fix(
            "D14",
            (
                (
                    "syncobj",
                    "logger.exception('failed to load full dump')",
                    "return True  # it failed",
                ),
                (
                    "syncobj",
                    "self.__loadDumpFile(clearJournal=True)",
                    "if self.__loadDumpFile(clearJournal=True): return",
                ),
            ),
        ),
        # log and snapshot meet by index and term; what the log has beyond is kept; an older one is not taken
        Fix(
            "D15",
            (
                ("syncobj", "self.__raftLog.clear()", "begin_with(self.__raftLog, data[2], data[1])"),
                ("syncobj", "self.__raftLog.add(*data[2])", "pass"),
                ("syncobj", "self.__raftLog.add(*data[1])", "pass"),
                (
                    "syncobj",
                    "data = self.__serializer.deserialize()",
                    (
                        "data = self.__serializer.deserialize()\n"
                        "            if clearJournal and data[1][1] <= self.__raftLastApplied: return True"
                    ),
                ),
            ),
            helpers=(("begin_with", _begin_with),),
        ),
    )
}


@cache
def stock_copy(*mended: str) -> StockCopy:
    """Return the copy of this process in which these defects are mended, none for the stock one."""
    return StockCopy(tuple(FIXES[defect] for defect in mended))
