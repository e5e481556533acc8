"""What transcripts are about: the scene of each folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.scenarios.channel_scene import ChannelScene
from tests.scenarios.raft_scene import RaftScene
from tests.scenarios.transcript import Scene

FOLDER = Path(__file__).parent

#: {folder of transcripts: what makes the scene of one of them}
SUBJECTS: dict[str, Callable[[], Scene]] = {
    "controller_channels": ChannelScene,
    "raft": RaftScene,
}


def transcripts() -> list[Path]:
    """Every transcript of every subject."""
    return [path for subject in SUBJECTS for path in sorted((FOLDER / subject).glob("*.txt"))]


def scene_of(path: Path) -> Scene:
    """Return a fresh scene for the transcript at this path."""
    return SUBJECTS[path.resolve().parent.name]()
