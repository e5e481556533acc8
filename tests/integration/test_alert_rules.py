"""The alert rules of deploy/observability, tried by promtool: each fires when it should.

Each alert has a row of series: an hour of what is normal, then two hours of what it is about. Knows nothing
of where the metrics come from; tests/support/observability.py compares their names with what servers export.
Source: Prometheus, "Unit Testing for Rules".
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.observability import FOLDER, promtool

FILES = ("alerts.yml", "brokers-alerts.yml")
#: minutes
NORMAL, BAD = 60, 120
#: How a counter that rises once a minute goes on, and one that stands still after that.
RISING = (f"0+1x{NORMAL}", f"{NORMAL + 1}+1x{BAD}")
STOPPED = (f"0+1x{NORMAL}", f"{NORMAL}x{BAD}")
#: How a gauge grows by ten a second, which is below QuorateGroupLag until the trial is over.
GROWING = (f"10x{NORMAL}", f"10+600x{BAD}")
#: How a gauge falls that is at zero within an hour.
FALLING = (f"1000x{NORMAL}", f"1000-20x{BAD}")


def level(normal: float, bad: float) -> tuple[str, str]:
    """A gauge that has one value, then another."""
    return f"{normal}x{NORMAL}", f"{bad}x{BAD}"


def jump(by: int = 1) -> tuple[str, str]:
    """A counter that stands still, and jumps once."""
    return f"0x{NORMAL}", f"{by}x{BAD}"


#: {alert: {series: (values while all is well, values after that)}}; `labelled` adds labels
SERIES: dict[str, dict[str, tuple[str, str]]] = {
    "QuorateNoLeader": {"quorate_raft_leader": level(1, 0)},
    "QuorateNodeNotReady": {"quorate_ready": level(1, 0)},
    "QuorateNodeDown": {"up": level(1, 0), 'quorate_ready{instance="other"}': level(1, 1)},
    "QuorateElections": {"quorate_raft_term": (f"1x{NORMAL}", f"2+1x{BAD}")},
    "QuorateSlowJournal": {
        'quorate_journal_write_seconds_bucket{le="0.1"}': STOPPED,
        'quorate_journal_write_seconds_bucket{le="1"}': RISING,
        'quorate_journal_write_seconds_bucket{le="+Inf"}': RISING,
    },
    "QuorateSlowWrites": {
        'quorate_commit_seconds_bucket{le="0.5"}': STOPPED,
        'quorate_commit_seconds_bucket{le="1"}': RISING,
        'quorate_commit_seconds_bucket{le="+Inf"}': RISING,
    },
    "QuoratePeerBehind": {'quorate_peer_lag_entries{peer="2"}': level(10, 10_001)},
    "QuorateSnapshotsFail": {"quorate_snapshots_failed_total": jump()},
    "QuorateChangelogWaits": {"quorate_changelog_pending_bytes": level(0, 9 * 1024 * 1024)},
    "QuorateDiskFills": {"quorate_disk_free_bytes": FALLING},
    "QuorateNoController": {"quorate_controller_active": level(1, 0)},
    "QuorateOfflinePartitions": {'quorate_controller_partitions{state="offline"}': level(0, 3)},
    "QuorateUnderReplicatedPartitions": {
        'quorate_controller_partitions{state="under_replicated"}': level(0, 3),
    },
    "QuorateBrokerNotReady": {"quorate_broker_ready": level(1, 0)},
    "QuorateBrokerHeld": {"quorate_broker_longest_turn_seconds": level(0.1, 1.5)},
    "QuorateUncleanElection": {"quorate_controller_unclean_elections_total": jump()},
    "QuorateDiskReplaced": {"quorate_controller_disks_replaced_total": jump()},
    "QuorateShortenedLogs": {"quorate_broker_shortened_logs": level(0, 2)},
    "QuorateTopicsLeftAlone": {"quorate_controller_topics_left_alone": level(0, 1)},
    "QuoratePartitionsFull": {
        "quorate_controller_partition_count": level(10, 81),
        "quorate_controller_partition_count_max": level(100, 100),
    },
    "QuorateConnectionsHold": {
        'quorate_broker_held_bytes{kind="received"}': level(10, 81),
        'quorate_broker_held_bytes_max{kind="received"}': level(100, 100),
    },
    "QuorateConnectionsFull": {
        "quorate_broker_connections": level(10, 81),
        "quorate_broker_connections_max": level(100, 100),
    },
    "QuorateNoCoordinator": {"quorate_coordinator_active": level(1, 0)},
    "QuorateGroupsUnwritten": {"quorate_groups_unwritten": level(0, 1)},
    "QuorateGroupsFull": {"quorate_groups_bytes": level(10, 81), "quorate_groups_bytes_max": level(100, 100)},
    "QuorateGroupLag": {'quorate_group_sum_lag_records{group="g"}': level(10, 100_001)},
    "QuorateGroupLate": {'quorate_group_max_lag_seconds{group="g"}': level(10, 601)},
    "QuorateGroupLagGrows": {'quorate_group_sum_lag_records{group="g"}': GROWING},
    "QuorateGroupLagUnknown": {'quorate_group_unknown_lag_partitions{group="g"}': level(0, 1)},
    "QuorateTransactionOpen": {"quorate_transaction_oldest_open_seconds": level(60, 601)},
    "QuorateTransactionLate": {"quorate_broker_partitions_with_late_transactions": level(0, 1)},
    "QuorateLogsUncleanable": {"quorate_broker_cleaner_uncleanable_partitions": level(0, 1)},
    "QuorateLogsDirty": {"quorate_broker_cleaner_due_seconds": level(60, 3601)},
    "QuorateConnectionsRefused": {
        'quorate_broker_connections_refused_total{listener="broker"}': (f"0x{NORMAL}", f"0+120x{BAD}"),
    },
    "QuorateStrangers": {"quorate_controller_strangers": level(0, 1)},
}


def alerts() -> dict[str, int]:
    """{alert: minutes that its `for` makes it wait, rounded up}."""
    found = {}
    for name in FILES:
        for rule in re.split(r"^ +- alert: ", (FOLDER / name).read_text(), flags=re.MULTILINE)[1:]:
            waits = re.search(r"^ +for: (\d+)([ms])$", rule, re.MULTILINE)
            minutes = 0 if waits is None else int(waits[1]) if waits[2] == "m" else 1
            found[rule.split(maxsplit=1)[0]] = minutes
    return found


def labelled(series: str) -> str:
    """Give a series the labels that Prometheus adds."""
    name, _, labels = series.removesuffix("}").partition("{")
    added = [f'{each}="{each}"' for each in ("job", "instance") if f"{each}=" not in labels]
    return f"{name}{{{','.join([*added, *([labels] if labels else [])])}}}"


def trial(alert: str, waits: int) -> dict[str, object]:
    """A test of promtool's: the alert alone fires, and only after that went on which it is about."""
    return {
        "interval": "1m",
        "input_series": [
            {"series": labelled(series), "values": " ".join(values)}
            for series, values in SERIES[alert].items()
        ],
        "promql_expr_test": [
            {"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{NORMAL}m", "exp_samples": []},
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                # one more for what looks at the difference of two samples, and five for its window
                "eval_time": f"{NORMAL + 1 + waits + 6}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
            },
        ],
    }


def tried(folder: Path, names: dict[str, int]) -> tuple[int, str]:
    tests = {
        "rule_files": [str(FOLDER / name) for name in FILES],
        "evaluation_interval": "1m",
        "tests": [trial(alert, waits) for alert, waits in names.items()],
    }
    path = folder / "tests.yml"
    # what is JSON is YAML
    path.write_text(json.dumps(tests))
    return promtool("test", "rules", path)


def test_the_rules_are_well_formed() -> None:
    code, said = promtool("check", "rules", *(FOLDER / name for name in FILES))
    assert code == 0, said
    assert said.count("SUCCESS") == len(FILES)


def test_every_alert_is_tried() -> None:
    assert set(SERIES) == set(alerts())


@pytest.mark.parametrize("alert", SERIES)
def test_an_alert_fires_when_it_should_and_not_before(tmp_path: Path, alert: str) -> None:
    code, said = tried(tmp_path, {alert: alerts()[alert]})
    assert code == 0, said


def test_an_alert_that_does_not_fire_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERIES, "QuorateNoLeader", {"quorate_raft_leader": level(1, 1)})
    code, said = tried(tmp_path, {"QuorateNoLeader": 1})
    assert code == 1
    assert "FAILED" in said
