"""`quorate topics` against a broker inside this process: what it prints, and what it says to odd input."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.cli.main import main
from tests.support.nodes import eventually

Output = pytest.CaptureFixture[str]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread() as running:
        yield running


def _run(output: Output, bootstrap: str, *words: str) -> tuple[int, str, str]:
    output.readouterr()
    code = main(["topics", words[0], "--bootstrap", bootstrap, *words[1:]])
    captured = output.readouterr()
    return code, captured.out, captured.err


def test_a_topic_from_its_creation_to_its_end(cluster: BlockingBrokers, capsys: Output) -> None:
    def run(*words: str) -> str:
        code, out, problem = _run(capsys, cluster.bootstrap, *words)
        assert code == 0, problem
        return out

    assert (
        run("create", "orders", "--partitions", "2") == "created orders: partitions 2, replication factor 1\n"
    )
    run("alter", "orders", "--partitions", "3", "--set", "retention.ms=5", "--set", "segment.bytes=2097152")
    assert json.loads(run("alter", "orders", "--unset", "segment.bytes", "--json")) == {"topic": "orders"}
    (found,) = json.loads(run("describe", "orders", "--json"))
    assert [(row["leader"], row["isr"], row["osr"]) for row in found["partitions"]] == [(1, [1], [])] * 3
    assert found["settings"]["retention.ms"] == {"value": "5", "source": "topic"}
    assert found["settings"]["segment.bytes"]["source"] == "default"
    assert "settings: retention.ms=5" in run("describe")
    code, _, said = _run(
        capsys, cluster.bootstrap, "alter", "orders", "--set", "retention.ms=5", "--partitions", "1"
    )
    assert code == 1
    assert "got no partitions, though its settings were changed" in said
    assert json.loads(run("list", "--json")) == [
        {"topic": "orders", "partitions": 3, "replication_factor": 1}
    ]
    run("delete", "orders")
    assert json.loads(run("list", "--json")) == []


def test_a_setting_without_effect_is_stored_with_a_warning(cluster: BlockingBrokers, capsys: Output) -> None:
    why = "has no effect: batches are stored as producers send them"
    settings = ("--set", "compression.type=zstd", "--set", "retention.ms=5")
    code, out, said = _run(capsys, cluster.bootstrap, "create", "idle", *settings)
    assert (code, out) == (0, "created idle: partitions 1, replication factor 1\n")
    assert said == f"warning: compression.type is stored and {why}\n"
    code, out, said = _run(capsys, cluster.bootstrap, "alter", "idle", "--set", "compression.zstd.level=9")
    assert (code, out) == (0, "altered idle\n")
    assert said == f"warning: compression.zstd.level is stored and {why}\n"
    _, out, said = _run(capsys, cluster.bootstrap, "describe", "idle")
    shown = "compression.type=zstd (no effect), compression.zstd.level=9 (no effect), retention.ms=5\n"
    assert (f"settings: {shown}" in out, said) == (True, "")
    (found,) = json.loads(_run(capsys, cluster.bootstrap, "describe", "idle", "--json")[1])
    assert found["settings"]["compression.type"]["no_effect"] == "batches are stored as producers send them"
    assert "no_effect" not in found["settings"]["retention.ms"]
    refused = "remote.storage.enable=true"
    code, _, said = _run(capsys, cluster.bootstrap, "alter", "idle", "--set", refused)
    assert code == 1
    assert "is not offered" in said
    assert _run(capsys, cluster.bootstrap, "delete", "idle")[0] == 0


def test_leaders_are_elected_on_request(capsys: Output) -> None:
    with brokers_in_thread(3) as running:

        def run(*words: str, code: int = 0) -> str:
            found, out, problem = _run(capsys, running.bootstrap, *words)
            assert found == code, problem
            return problem if code else out

        def state() -> tuple[int | None, list[int]]:
            row = json.loads(run("describe", "t", "--json"))[0]["partitions"][0]
            return row["leader"], row["isr"]

        run("create", "t", "--partitions", "1", "--replication-factor", "2")
        first, second = json.loads(run("describe", "t", "--json"))[0]["partitions"][0]["replicas"]
        assert run("elect") == "elected leaders of 0 of 1 partitions, 1 did not need it\n"
        running.stop(first)
        eventually(lambda: state() == (second, [second]), WAIT_S)
        assert "t-0: " in run("elect", "t", code=1)
        running.start(first)
        eventually(lambda: sorted(state()[1]) == sorted([first, second]), WAIT_S)
        (row,) = json.loads(run("elect", "t", "--json"))
        assert (row["topic"], row["partition"], row["error"]) == ("t", 0, None)
        eventually(lambda: state()[0] == first, WAIT_S)

        running.stop(second)
        eventually(lambda: state() == (first, [first]), WAIT_S)
        running.stop(first)
        running.start(second)
        eventually(lambda: state() == (None, [first]), WAIT_S)
        assert "elected leaders of 1 of 1 partitions" in run("elect", "--unclean")
        eventually(lambda: state() == (second, [second]), WAIT_S)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("create", "x", "--partitions", "999999999999"), "'999999999999' is no whole number from 1"),
        (("create", "x", "--partitions", "20000"), "20000 partitions: give 1 to"),
        (("create", "x", "--partitions", "0"), "'0' is no whole number from 1"),
        (("create", "x", "--replication-factor", "70000"), "'70000' is no whole number from 1"),
        (("create", "x", "--replication-factor", "2"), "larger than available brokers: 1"),
        (("create", "x", "--set", "retention"), "is not a setting"),
        (("create", "x", "--set", "retention.m=1"), "did you mean 'retention.ms'?"),
        (("create", ""), "the empty string is not allowed"),
        (("alter", "x"), "nothing to change"),
        (("alter", "x", "--set", "retention.ms=1"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("alter", "x", "--unset", "retention.m"), "did you mean 'retention.ms'?"),
        (("describe", "x"), "does not exist"),
        (("elect", "x"), "does not exist"),
        (("elect", "a b"), "INVALID_TOPIC_EXCEPTION"),
        (("delete", "x"), "does not exist"),
    ],
)
def test_odd_input_is_an_error_in_words(
    cluster: BlockingBrokers, capsys: Output, words: tuple[str, ...], problem: str
) -> None:
    code, out, said = _run(capsys, cluster.bootstrap, *words)
    assert code in (1, 2)
    assert not out
    assert problem in said


@pytest.mark.parametrize("words", [("describe", "x"), ("delete", "x"), ("alter", "x", "--partitions", "3")])
def test_a_topic_that_does_not_exist_is_a_refusal_with_a_remedy(
    cluster: BlockingBrokers, capsys: Output, words: tuple[str, ...]
) -> None:
    code, _, said = _run(capsys, cluster.bootstrap, *words)
    assert code == 1
    assert "remedy: see `quorate topics list`" in said


def test_a_topic_that_cannot_be_made_is_refused_with_a_remedy(
    cluster: BlockingBrokers, capsys: Output
) -> None:
    for words, remedy in (
        ((), ""),
        ((), "remedy: `quorate topics alter` changes it"),
        (("--replication-factor", "5"), "remedy: give at least 1, at most as many"),
    ):
        name = "many" if words else "twice"
        code, _, said = _run(capsys, cluster.bootstrap, "create", name, *words)
        assert code == (1 if remedy else 0), said
        assert remedy in said
    assert _run(capsys, cluster.bootstrap, "delete", "twice")[0] == 0


def test_a_value_that_a_setting_cannot_have_is_explained_once(
    cluster: BlockingBrokers, capsys: Output
) -> None:
    _, _, said = _run(capsys, cluster.bootstrap, "create", "x", "--set", "retention.ms=soon")
    assert "Invalid value soon for configuration retention.ms" in said
    assert said.count("a whole number from -1 to 9223372036854775807") == 1


def test_an_address_that_is_not_of_a_client_listener_is_said_to_be_so(
    cluster: BlockingBrokers, capsys: Output
) -> None:
    code, _, said = _run(capsys, "nonsense", "list")
    assert code == 2
    assert "address 'nonsense' of a broker has no host or no port" in said
    code, _, said = _run(capsys, cluster.hosts, "list")
    assert code == 1
    assert "remedy:" in said
