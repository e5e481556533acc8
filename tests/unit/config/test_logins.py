"""Passwords in files: which are refused, and what a file that went bad leaves."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from quorum.config.logins import FileLogin, read_password
from quorum.errors import ConfigError


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (b"", 0o600, "holds no password"),
        (b"two\nlines\n", 0o600, "holds no password"),
        ("süß\n".encode(), 0o600, "holds no password"),
        (b"x" * 1025, 0o600, "holds no password"),
        (b"fine", 0o640, "is open to other users of the machine"),
    ],
)
def test_a_file_that_holds_no_password_alone_is_refused(
    tmp_path: Path, content: bytes, mode: int, told: str
) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=told) as refused:
        read_password(file, "quorum.sasl_password_file")
    assert refused.value.field == "quorum.sasl_password_file"
    with pytest.raises(ConfigError, match="is no regular file"):
        read_password(tmp_path, "quorum.sasl_password_file")


def test_a_password_is_read_anew_and_a_bad_file_leaves_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_text(" with spaces \r\n")
    login = FileLogin("alice", file, "--password-file")
    assert login.password() == " with spaces "
    file.write_text("new")
    assert login.password() == "new"
    file.unlink()
    with caplog.at_level(logging.WARNING):
        assert [login.password() for _ in range(3)] == ["new"] * 3
    assert len(caplog.records) == 1
    assert "what was read before stays in use" in caplog.text
