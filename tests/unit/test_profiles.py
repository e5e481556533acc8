"""Profiles of the command line: what a name stands for, and which files are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs.audit import broker_options
from quorum.cli.main import build_parser, main
from quorum.config.logins import PROVING
from quorum.config.profiles import read_profile, use_profile
from quorum.config.settings import overlay_environment
from quorum.errors import ConfigProblem
from quorum.platform.tls import DIALLING
from tests.support.certificates import Authority


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "profiles.toml"
    file.touch(mode=0o600)
    monkeypatch.setenv("QUORATE_PROFILE_FILE", str(file))
    monkeypatch.delenv("QUORATE_PROFILE", raising=False)
    return file


def parsed(profiles: Path, *words: str) -> Any:
    parser = build_parser()
    use_profile(parser, read_profile("prod", str(profiles)))
    return parser.parse_args(words)


def test_a_profile_is_the_default_of_every_command(profiles: Path) -> None:
    profiles.write_text(
        '[prod]\nhosts = ["a:1", "b:2"]\nbootstrap_servers = "c:3"\nadmin = "https://d:4"\nca = "ca.pem"\n'
        'sasl = "ops"\npassword_file = "/p"\nkafka_sasl = "app"\nkafka_password_file = "~/q"\n'
        'kafka_mechanism = "PLAIN"\ntoken_file = "token"\n'
    )
    shell = parsed(profiles, "shell", "ls", "/")
    assert (shell.hosts, shell.sasl, shell.password_file) == ("a:1,b:2", "ops", Path("/p"))
    assert (shell.ca, shell.token_file) == (profiles.parent / "ca.pem", str(profiles.parent / "token"))
    topics = parsed(profiles, "topics", "list", "--bootstrap", "mine:9")
    assert (topics.bootstrap, topics.kafka_sasl, topics.kafka_mechanism) == ("mine:9", "app", "PLAIN")
    assert topics.kafka_password_file == Path("~/q").expanduser()
    assert parsed(profiles, "members", "list").admin == "https://d:4"
    for command in ("doctor", "bundle", "console", "top"):
        assert parsed(profiles, command).admin == "https://d:4"
        assert parsed(profiles, command, "--admin", "https://e:5").admin == "https://e:5"
    profiles.write_text(profiles.read_text().replace('"https://d:4"', '["https://d:4", "https://f:6"]'))
    assert parsed(profiles, "status").admin == "https://d:4,https://f:6"
    profiles.write_text(profiles.read_text().replace('["https://d:4", "https://f:6"]', '"https://d:4"'))
    job = parsed(profiles, "pipeline", "isr_history")
    assert (job.admin, job.token_file) == ("https://d:4", str(profiles.parent / "token"))
    # What turns something on is not turned on by an address.
    assert parsed(profiles, "pipeline", "audit", "runs").bootstrap is None
    assert not parsed(profiles, "serve", "--config", "x").bootstrap


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[other]\n", "there is none\nremedy: name one of other"),
        ("", "there is none\nremedy: write a table [prod] into it"),
        ('[prod]\nhost = "a:1"\n', "there is no key 'host'\nremedy: remove host, or use one of hosts, "),
        ("[prod]\nhosts = 7\n", "hosts = 7\nremedy: give host:port,…"),
        ('[prod]\nsasl = ""\n', "sasl = ''\nremedy: give a text"),
        ("[prod]\nca = []\n", "ca = []\nremedy: give a file"),
        (
            '[prod]\nkafka_mechanism = "GSSAPI"\n',
            "remedy: give one of SCRAM-SHA-256,",
        ),
        ("[prod\n", "remedy: write TOML, a table a profile"),
    ],
)
def test_wrong_profiles_are_refused_with_a_remedy(
    profiles: Path, capsys: pytest.CaptureFixture[str], content: str, told: str
) -> None:
    profiles.write_text(content)
    assert main(["--profile", "prod", "topics", "list"]) == 2
    assert told in capsys.readouterr().err


def test_a_profile_that_names_secrets_is_its_owners_alone(
    profiles: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles.write_text('[prod]\nhosts = "127.0.0.1:1"\npeer_secret = "secret"\n[open]\nhosts = "a:1"\n')
    profiles.chmod(0o640)
    assert main(["--profile", "prod", "users", "list"]) == 2
    told = capsys.readouterr().err
    assert "names a secret by peer_secret, and is open to other users" in told
    assert f"remedy: chmod 600 {profiles}" in told
    assert read_profile("open", str(profiles)) == {"hosts": "a:1"}
    monkeypatch.setenv("QUORATE_PROFILE_FILE", f"{profiles}.none")
    monkeypatch.setenv("QUORATE_PROFILE", "prod")
    assert main(["members", "list"]) == 2
    assert "name another one by QUORATE_PROFILE_FILE" in capsys.readouterr().err
    assert os.environ["QUORATE_PROFILE"] == "prod"
    # A command's own words are not the command line's.
    assert main(["--profile", "prod", "certs", "issue", "--profile"]) == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--sasl", "ops"], "--password-file is not set, and --sasl is\nremedy: give both, or none"),
        (["--password-file", "x"], "--sasl is not set, and --password-file is"),
        (["--sasl", "a:b", "--password-file", "x"], "--sasl a:b is no name of a user"),
        (["--sasl", "ops", "--password-file", "none"], "--password-file 'none' cannot be read"),
    ],
)
def test_half_a_login_is_refused_with_a_remedy(
    capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    assert main(["users", "list", *options]) == 2
    assert told in capsys.readouterr().err
    assert main(["topics", "list", *options]) == 2
    assert told in capsys.readouterr().err


def test_an_audit_dials_brokers_as_its_options_say(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("secret")
    words = ["pipeline", "audit", "--bootstrap", "b:1"]
    plain = {"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "plaintext"}
    assert broker_options(build_parser().parse_args(words)) == plain
    words += ["--ca", "ca.pem", "--sasl", "ops", "--password-file", str(password)]
    assert broker_options(build_parser().parse_args(words)) == {
        "kafka.bootstrap.servers": "b:1",
        "kafka.security.protocol": "sasl_ssl",
        "kafka.ssl.ca.location": "ca.pem",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.username": "ops",
        "quorate.passwordFile": str(password),
    }


def test_nodes_do_not_take_the_profile_for_a_setting() -> None:
    problems: list[ConfigProblem] = []
    environ = {"QUORATE_PROFILE": "prod", "QUORATE_PROFILE_FILE": "f", "QUORATE_PROFILES": "x"}
    overlay_environment({}, environ, {}, problems)
    assert [each.field for each in problems] == ["QUORATE_PROFILES"]


def test_a_command_line_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    authority, password = Authority(tmp_path / "pki"), tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("it is long enough\n")
    words = ("--ca", str(authority.file), "--sasl", "ops", "--password-file", str(password))
    assert main(["status", "--admin", "https://127.0.0.1:1", *words]) == 1
    assert DIALLING.get() is None
    assert PROVING.get() is None
