"""The file of peer secrets, read again while a process runs: what counts, and what keeps what was."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from quorum.config.peer_secrets import PeerSecrets
from quorum.errors import ConfigError

OLD, NEW = "the old secret of the cluster", "the new secret of the cluster"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "peer.secret"
    path.touch(mode=0o600)
    path.write_text(f"{OLD}\n")
    return path


def test_each_step_of_a_replacement_counts(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "quorate.secrets")
    secrets = PeerSecrets(file)
    for lines in ([OLD, NEW], [NEW, OLD], [NEW]):
        file.write_text("\n".join(lines))
        secrets.reload()
        assert list(secrets) == lines
        secrets.reload()
    told = [record.message.partition(": ")[2] for record in caplog.records]
    assert told == [
        "new connections prove the same secret, and accept 2",
        "new connections prove another secret, and accept 2",
        "new connections prove the same secret, and accept 1",
    ]
    assert not any(each in text for text in (*told, repr(secrets)) for each in (OLD, NEW))


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("", 0o600, "holds 0 bytes"),
        (f"{OLD}\nshort", 0o600, "has a secret of 5 bytes"),
        (5000 * "x", 0o600, "holds 4097 bytes"),
        ("\n".join(f"{OLD}{number}" for number in range(5)), 0o600, "has 5 secrets; there are at most 4"),
        (f"{OLD}\n{OLD}", 0o600, "has one secret twice"),
        (f"{OLD}\n{NEW}", 0o644, "is open to every user of the machine"),
        (NEW, 0o600, "has no line that counts now"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_bad_file_keeps_what_was_and_is_warned_of_once(
    file: Path, caplog: pytest.LogCaptureFixture, content: str | None, mode: int, said: str
) -> None:
    secrets = PeerSecrets(file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
        file.chmod(mode)
    secrets.reload()
    secrets.reload()
    assert list(secrets) == [OLD]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert said in warning.message
    assert warning.message.startswith("what was read before stays in use")
    assert OLD not in warning.message.replace(str(file), "")


def test_a_start_with_a_bad_file_is_refused(file: Path) -> None:
    file.write_text(f"{OLD}\n{OLD}\n")
    with pytest.raises(ConfigError, match="has one secret twice"):
        PeerSecrets(file)
