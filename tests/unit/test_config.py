"""The configuration of a node: layers, defaults, refusals, relations, masking."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.config.address import Address, parse_address, parse_member_address
from quorum.config.node import (
    NodeConfig,
    load_node_config,
    node_config,
    read_peer_secrets,
)
from quorum.config.secrets import SECRET_BYTES_MAX
from quorum.errors import ConfigError, Fault

SECRET = "0123456789abcdef"
DIGEST = "super:" + 27 * "D" + "="
FILE = """
[node]
id = 1
cluster = "local"
data_dir = "data/node-1"
[members]
1 = "127.0.0.1:2281"
2 = "127.0.0.1:2282"
[security]
peer_secret_file = "peer.secret"
"""
Load = Callable[..., NodeConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a node.toml of the given text from a folder that holds a good secret."""
    secret = tmp_path / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)

    def do(
        text: str = FILE, environ: dict[str, str] | None = None, overrides: dict[str, object] | None = None
    ) -> NodeConfig:
        (tmp_path / "node.toml").write_text(text)
        return load_node_config(tmp_path / "node.toml", environ or {}, overrides)

    return do


def with_lines(section: str, *lines: str) -> str:
    """FILE with more lines in one of its sections, or with a section more."""
    added = "\n".join(lines)
    if f"[{section}]" in FILE:
        return FILE.replace(f"[{section}]", f"[{section}]\n{added}")
    return f"{FILE}[{section}]\n{added}\n"


def refusal(load: Load, *args: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(*args)
    return caught.value


def test_defaults_fill_what_the_file_leaves_out(load: Load, tmp_path: Path) -> None:
    config = load()
    assert config.node.id == 1
    assert config.listen.client == Address("127.0.0.1", 2181)
    assert config.raft.election_timeout_ms == (300, 600)
    assert config.limits.session_timeout_max_ms == 40_000
    assert config.security.four_letter_words == ("srvr", "ruok", "mntr", "isro", "stat")
    assert config.limits.read_only_mode is False
    assert config.limits.enforce_quota is False
    assert config.members == {1: Address("127.0.0.1", 2281), 2: Address("127.0.0.1", 2282)}


def test_relative_paths_count_from_the_folder_of_the_file(load: Load, tmp_path: Path) -> None:
    config = load()
    assert config.node.data_dir == tmp_path / "data/node-1"
    assert config.security.peer_secret_file == tmp_path / "peer.secret"
    assert load(FILE.replace("data/node-1", "/var/quorate")).node.data_dir == Path("/var/quorate")


def test_the_environment_overrides_the_file_and_flags_override_both(load: Load) -> None:
    text = with_lines("raft", "heartbeat_interval_ms = 60")
    variable = {"QUORATE_RAFT_HEARTBEAT_INTERVAL_MS": "70"}
    assert load(text).raft.heartbeat_interval_ms == 60
    assert load(text, variable).raft.heartbeat_interval_ms == 70
    assert load(text, variable, {"raft.heartbeat_interval_ms": "80"}).raft.heartbeat_interval_ms == 80
    assert load(text, variable, {"raft.heartbeat_interval_ms": 90}).raft.heartbeat_interval_ms == 90


def test_every_kind_of_value_can_come_from_the_environment(load: Load) -> None:
    config = load(
        FILE,
        {
            "QUORATE_NODE_CLUSTER": "007",
            "QUORATE_LISTEN_CLIENT": "[::1]:2181",
            "QUORATE_MEMBERS_3": "db3.example.org:2281",
            "QUORATE_RAFT_ELECTION_TIMEOUT_MS": "[200, 400]",
            "QUORATE_LIMITS_READ_ONLY_MODE": "true",
            "QUORATE_SECURITY_FOUR_LETTER_WORDS": "ruok, srvr",
        },
    )
    assert config.node.cluster == "007"
    assert config.listen.client == Address("::1", 2181)
    assert str(config.listen.client) == "[::1]:2181"
    assert config.members[3] == Address("db3.example.org", 2281)
    assert config.raft.election_timeout_ms == (200, 400)
    assert config.limits.read_only_mode is True
    assert config.security.four_letter_words == ("ruok", "srvr")


def test_all_four_letter_words_are_named_by_a_star(load: Load) -> None:
    words = load(with_lines("security", 'four_letter_words = ["*"]')).security.four_letter_words
    assert {"ruok", "dump", "wchp", "srst"} <= set(words)


def test_names_of_the_admin_port_are_a_list_of_host_names(load: Load) -> None:
    assert load(FILE).security.admin_hosts == ("localhost",)
    named = load(with_lines("security", 'admin_hosts = ["node-1.example", "db_1"]'))
    assert named.security.admin_hosts == ("node-1.example", "db_1")
    assert load(with_lines("security", "admin_hosts = []")).security.admin_hosts == ()
    given = {"QUORATE_SECURITY_ADMIN_HOSTS": "node-1.example, db_1"}
    assert load(FILE, given).security.admin_hosts == ("node-1.example", "db_1")


@pytest.mark.parametrize("given", ["ruok, srvr", "ruok,srvr", '["ruok", "srvr"]', '"ruok,srvr"'])
def test_words_of_the_environment_and_of_a_flag_may_stand_with_commas_between(load: Load, given: str) -> None:
    expected = ("ruok", "srvr")
    assert load(FILE, {"QUORATE_SECURITY_FOUR_LETTER_WORDS": given}).security.four_letter_words == expected
    assert load(FILE, {}, {"security.four_letter_words": given}).security.four_letter_words == expected
    assert "dump" in load(FILE, {"QUORATE_SECURITY_FOUR_LETTER_WORDS": "*"}).security.four_letter_words


def test_session_timeouts_follow_the_tick_unless_they_are_given(load: Load) -> None:
    limits = load(with_lines("limits", "tick_ms = 500")).limits
    assert (limits.session_timeout_min_ms, limits.session_timeout_max_ms) == (1000, 10_000)
    limits = load(with_lines("limits", "tick_ms = 500", "session_timeout_max_ms = 60000")).limits
    assert (limits.session_timeout_min_ms, limits.session_timeout_max_ms) == (1000, 60_000)


def test_a_configuration_is_frozen(load: Load) -> None:
    config = load()
    with pytest.raises(AttributeError):
        config.raft.heartbeat_interval_ms = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.members[9] = Address("h", 1)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (with_lines("node", "clutser = 1"), "node.clutser", ["'cluster'"]),
        (with_lines("rafts", "a = 1"), "[rafts]", ["'raft'"]),
        (with_lines("raft", "heartbeat_ms = 1"), "raft.heartbeat_ms", ["'heartbeat_interval_ms'"]),
        ("id = 1\n" + FILE, "id", ["[node]"]),
        (FILE.replace("id = 1", 'id = "1"'), "node.id", ["'1'", "whole number", "1 to 255"]),
        (FILE.replace("id = 1", "id = true"), "node.id", ["True", "whole number"]),
        (FILE.replace("id = 1", "id = 0"), "node.id", ["0", "1 to 255"]),
        (FILE.replace("id = 1", "id = 256"), "node.id", ["256", "1 to 255"]),
        (FILE.replace("id = 1", "id = 3"), "node.id", ["3", "1, 2", "[members]"]),
        (FILE.replace("id = 1", ""), "node.id", ["needed"]),
        (FILE.replace('"local"', '"a b"'), "node.cluster", ["'a b'"]),
        (FILE.replace('"data/node-1"', "1"), "node.data_dir", ["path"]),
        (FILE.replace('1 = "127.0.0.1:2281"', 'one = "127.0.0.1:2281"'), "members.one", ["no node id"]),
        (with_lines("members", 'super_digest = "a:HIDDEN"'), "members.super_digest", ["*** is no node id"]),
        (FILE.replace('1 = "127.0.0.1:2281"', '01 = "127.0.0.1:2281"'), "members.01", ["no node id"]),
        (FILE.replace("127.0.0.1:2282", "127.0.0.1"), "members.2", ["no host or no port"]),
        (FILE.replace("127.0.0.1:2282", "127.0.0.1:2281"), "members.2", ["also the address of 1"]),
        (with_lines("listen", 'client = "127.0.0.1:0"'), "listen.client", ["65535"]),
        (with_lines("listen", 'client = "127.0.0.1:65536"'), "listen.client", ["65535"]),
        (with_lines("listen", 'client = "::1:2181"'), "listen.client", ["brackets"]),
        (with_lines("listen", "client = 2181"), "listen.client", ["host:port"]),
        (with_lines("listen", 'admin = "127.0.0.1:2181"'), "listen.admin", ["listen.client"]),
        (with_lines("raft", "election_timeout_ms = 300"), "raft.election_timeout_ms", ["two whole numbers"]),
        (with_lines("raft", "election_timeout_ms = [600, 300]"), "raft.election_timeout_ms", ["smaller"]),
        (with_lines("raft", "heartbeat_interval_ms = 101"), "raft.heartbeat_interval_ms", ["third", "100"]),
        (with_lines("raft", "batch_bytes_max = 1048574"), "raft.batch_bytes_max", ["limits.frame_bytes_max"]),
        (with_lines("raft", "segment_bytes_max = 2147483649"), "raft.segment_bytes_max", ["2147483648"]),
        (
            with_lines("raft", "segment_bytes_max = 8388607"),
            "raft.segment_bytes_max",
            ["raft.batch_bytes_max"],
        ),
        (with_lines("limits", "session_timeout_min_ms = 40001"), "limits.session_timeout_min_ms", ["40000"]),
        (with_lines("limits", "tick_ms = 50"), "limits.session_timeout_min_ms", ["heartbeats", "150"]),
        (with_lines("limits", "read_only_mode = 1"), "limits.read_only_mode", ["true or false"]),
        (with_lines("limits", 'enforce_quota = "yes"'), "limits.enforce_quota", ["true or false"]),
        (with_lines("limits", "tick_ms = 2000.0"), "limits.tick_ms", ["whole number"]),
        (with_lines("security", 'four_letter_words = ["rouk"]'), "security.four_letter_words", ["'ruok'"]),
        (with_lines("security", 'admin_hosts = ["*"]'), "security.admin_hosts", ["'*'", "host name"]),
        (with_lines("security", 'admin_hosts = ["h:81"]'), "security.admin_hosts", ["'h:81'"]),
        (
            with_lines("security", 'four_letter_words = "ruok"'),
            "security.four_letter_words",
            ["is not a list"],
        ),
        (with_lines("security", 'four_letter_words = "*"'), "security.four_letter_words", ["is not a list"]),
        (with_lines("security", "four_letter_words = [1]"), "security.four_letter_words", ["is not a list"]),
        (with_lines("security", 'super_digest = "x"'), "security.super_digest", ["superDigest"]),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_its_value_and_a_remedy(
    load: Load, text: str, field: str, words: list[str]
) -> None:
    error = refusal(load, text)
    problem = next(row for row in error.problems if row.field == field)
    told = f"{problem.value} {problem.problem} {problem.remedy}"
    assert [word for word in words if word not in told] == []
    assert problem.remedy
    assert (error.definite, error.retriable, error.fault) == (True, False, Fault.OPERATOR)


def test_a_relation_to_the_tick_names_both_values(load: Load) -> None:
    text = with_lines("limits", "session_timeout_min_ms = 1000", "session_timeout_max_ms = 1500")
    problem = refusal(load, text).problems[0]
    assert problem.field == "limits.session_timeout_max_ms"
    assert "2000" in problem.problem


def test_all_problems_are_told_at_once(load: Load) -> None:
    text = FILE.replace("id = 1", "id = 0").replace('"local"', '""') + "[raft]\nheartbeat_interval_ms = 500\n"
    fields = [problem.field for problem in refusal(load, text).problems]
    assert fields == ["node.id", "node.cluster", "raft.heartbeat_interval_ms"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("QUORATE_NODE_IDD", "QUORATE_NODE_ID"),
        ("QUORATE_LIMIT_TICK_MS", "QUORATE_LIMITS_TICK_MS"),
        ("QUORATE_NODE", ""),
        ("QUORATE_", ""),
    ],
)
def test_a_variable_that_names_no_setting_is_refused(load: Load, name: str, hint: str) -> None:
    problem = refusal(load, FILE, {name: "1"}).problems[0]
    assert problem.field == name
    assert hint in problem.remedy


def test_variables_that_kubernetes_sets_for_a_service_are_left_alone(load: Load) -> None:
    links = (
        "QUORATE_PORT",
        "QUORATE_SERVICE_HOST",
        "QUORATE_NODE_SERVICE_HOST",
        "QUORATE_NODE_PORT_2181_TCP_ADDR",
        "QUORATE_SERVICE_PORT_ADMIN",
        "QUORATE_BROKER_SERVICE_PORT",
    )
    assert load(FILE, dict.fromkeys(links, "tcp://10.0.0.1:2181")).node.id == 1


@pytest.mark.parametrize("name", ["QUORATE_LISTEN_PORT", "QUORATE_LIMITS_SERVICE_PORT", "QUORATE_PORT"])
def test_a_misspelt_variable_that_only_looks_like_kubernetes_is_refused(load: Load, name: str) -> None:
    other = {"QUORATE_NODE_SERVICE_HOST": "10.0.0.1"}
    assert refusal(load, FILE, other | {name: "2181"}).problems[0].field == name


def test_a_wrong_variable_or_flag_is_named_as_such(load: Load) -> None:
    variable = refusal(load, FILE, {"QUORATE_LIMITS_TICK_MS": "soon"}).problems[0]
    assert (variable.field, variable.value) == ("limits.tick_ms (from QUORATE_LIMITS_TICK_MS)", "'soon'")
    flag = refusal(load, FILE, {}, {"limits.tick": 1}).problems[0]
    assert flag.field == "limits.tick (from the command line)"
    assert "'tick_ms'" in flag.remedy


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (None, 0o600, "No such file"),
        ("short", 0o600, "5 bytes"),
        ("  short\n\n          ", 0o600, "5 bytes"),
        (SECRET_BYTES_MAX * "x" + "y", 0o600, str(SECRET_BYTES_MAX + 1)),
        (SECRET, 0o604, "every user"),
        ("", 0o600, "0 bytes"),
        (f"{SECRET}\nshort\n", 0o600, "has a secret of 5 bytes; each has at least 16"),
        ("\n".join(f"{SECRET}{n}" for n in range(5)), 0o600, "has 5 secrets; there are at most 4"),
        (f"{SECRET}\n{SECRET}\n", 0o600, "has one secret twice"),
        (SECRET, 0o602, "every user"),
    ],
)
def test_a_bad_secret_file_is_refused(tmp_path: Path, content: str | None, mode: int, words: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(ConfigError) as caught:
        read_peer_secrets(path)
    assert caught.value.field == "security.peer_secret_file"
    assert words in caught.value.problems[0].problem
    assert re.search("chmod 600|write each on a line|cut", caught.value.problems[0].remedy)


def test_a_secret_that_is_there_and_cannot_be_read_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)

    def refuse(*_arguments: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError) as caught:
        read_peer_secrets(path)
    assert caught.value.problems[0].problem == "cannot be read: Permission denied"
    assert "change its owner or mode" in caught.value.problems[0].remedy
    assert "openssl" not in caught.value.problems[0].remedy


def test_what_is_no_file_is_no_secret_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match="is no regular file") as caught:
            read_peer_secrets(path)
        assert str(path) in caught.value.problems[0].value


def test_a_secret_does_not_depend_on_the_line_end_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o640)
    path.write_text(f"{SECRET}\n")
    assert read_peer_secrets(path) == [SECRET]


def test_loading_refuses_a_bad_secret_file(load: Load) -> None:
    assert refusal(load, FILE.replace("peer.secret", "none")).field == "security.peer_secret_file"


@pytest.mark.parametrize(
    ("text", "words"),
    [("[node", "is not TOML"), ("a = [\n", "is not TOML"), (FILE + "[node]\n", "is not TOML")],
)
def test_a_file_that_is_not_toml_is_refused(load: Load, text: str, words: str) -> None:
    assert words in refusal(load, text).problems[0].problem


def test_a_missing_file_and_a_file_of_other_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_node_config(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_node_config(tmp_path / "bytes.toml")


def test_an_error_does_not_repeat_a_value_without_end(load: Load) -> None:
    error = refusal(load, FILE.replace('"local"', '"' + 10_000 * "x" + '"'))
    assert len(error.problems[0].value) <= 200


def test_secrets_are_masked_when_the_configuration_is_printed(load: Load) -> None:
    text = with_lines("security", f'super_digest = "{DIGEST}"')
    printed = load(text).masked()
    assert DIGEST not in printed
    assert SECRET not in printed
    assert json.loads(printed)["security"]["super_digest"] == "***"
    assert json.loads(printed)["members"] == {"1": "127.0.0.1:2281", "2": "127.0.0.1:2282"}
    assert json.loads(load().masked())["security"]["super_digest"] == ""


def test_a_wrong_secret_value_is_not_repeated_in_the_error(load: Load) -> None:
    error = refusal(load, with_lines("security", 'super_digest = "super:hunter2"'))
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("text", "environ", "overrides", "field"),
    [
        ("", {"QUORATE_SECURITY_SUPER_DIGST": DIGEST}, {}, "QUORATE_SECURITY_SUPER_DIGST"),
        ("", {"QUORATE_SECURITY_X": DIGEST}, {}, "QUORATE_SECURITY_X"),
        ("", {"QUORATE_SECURTY_SUPER_DIGEST": DIGEST}, {}, "QUORATE_SECURTY_SUPER_DIGEST"),
        ("", {"QUORATE_SUPER_DIGEST": DIGEST}, {}, "QUORATE_SUPER_DIGEST"),
        ("", {"QUORATE_NODE_SUPER_DIGEST": DIGEST}, {}, "QUORATE_NODE_SUPER_DIGEST"),
        ("", {}, {"security.super_digst": DIGEST}, "security.super_digst (from the command line)"),
        ("", {}, {"raft.superdigest": DIGEST}, "raft.superdigest (from the command line)"),
        (with_lines("security", f'super = "{DIGEST}"'), {}, {}, "security.super"),
        (with_lines("security", f'digests = {{ a = "{DIGEST}" }}'), {}, {}, "security.digests"),
        (with_lines("securiti", f'super_digest = "{DIGEST}"'), {}, {}, "[securiti]"),
        (f'super_digest = "{DIGEST}"\n{FILE}', {}, {}, "super_digest"),
    ],
)
def test_a_secret_under_a_wrong_name_is_not_repeated_in_the_error(
    load: Load, text: str, environ: dict[str, str], overrides: dict[str, object], field: str
) -> None:
    error = refusal(load, text or FILE, environ, overrides)
    assert [problem.field for problem in error.problems] == [field]
    assert DIGEST not in str(error)


def test_another_value_under_a_wrong_name_is_shown(load: Load) -> None:
    error = refusal(load, with_lines("raft", "tick = 17"), {"QUORATE_NODE_IDD": "18"})
    assert [problem.value for problem in error.problems] == ["'18'", "17"]


def test_a_configuration_can_come_without_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "s"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    sections: dict[str, dict[str, object]] = {
        "node": {"id": 2, "cluster": "embedded", "data_dir": "d"},
        "members": {"10": "h:1", "2": "h:2"},
        "security": {"peer_secret_file": "s"},
    }
    config = node_config(sections, tmp_path)
    assert list(config.members) == [2, 10]
    assert config.node.data_dir == tmp_path / "d"


@given(
    st.one_of(
        st.from_regex(r"[a-z][a-z0-9-]{0,8}(\.[a-z0-9-]{1,5}){0,3}\.?", fullmatch=True),
        st.ip_addresses(v=4).map(str),
        st.ip_addresses(v=6).map(str),
    ),
    st.integers(1, 65535),
)
def test_an_address_reads_what_it_prints(host: str, port: int) -> None:
    assert parse_address(str(Address(host, port))) == (host, port)


@pytest.mark.parametrize(
    "host",
    [
        *("999.1.1.1", "1.2.3", "1.2.3.4.5", "1", "a..b", ".a", ".", "[1::2::3]", "[1.2.3.4]x", "[::g]"),
        *("a" * 64, "a." * 127 + "b", "a%b"),
    ],
)
def test_what_can_be_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"has no proper host|without brackets"):
        parse_address(f"{host}:1")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "255.255.255.255", "224.0.0.1", "[ff02::1]"])
def test_a_node_is_dialled_at_one_machine(load: Load, host: str) -> None:
    assert str(parse_address(f"{host}:1")) == f"{host}:1"
    with pytest.raises(ValueError, match="no machine that the other nodes could dial"):
        parse_member_address(f"{host}:1")
    problem = refusal(load, FILE.replace("127.0.0.1:2282", f"{host}:1")).problems[0]
    assert (problem.field, problem.value) == ("members.2", f"'{host}:1'")


@pytest.mark.parametrize("mark", [*";|=,<>\"'/@[] \\\0\x01\x7f"])
def test_an_address_holds_no_separator_of_what_it_stands_in(mark: str) -> None:
    with pytest.raises(ValueError, match="has no proper host"):
        parse_address(f"a{mark}b:1")


@pytest.mark.parametrize("address", ["node_1.local:1", "10.0.0.4:2281", "[fe80::1%eth0]:65535", "müller:7"])
def test_names_and_numbers_are_addresses(address: str) -> None:
    assert str(parse_address(address)) == address


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_clear_refusal(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError as error:
        refused = str(error)
    else:
        refused = ""
        assert address.host
        assert 1 <= address.port <= 65535
    assert refused == "" or refused.startswith("has ")
