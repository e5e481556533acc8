"""Every row of the controller's costs by partitions, at a tiny size: `make bench` runs this first."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.bench import scale
from tests.bench.controller_world import ControllerWorld


def test_every_row_has_a_value_for_every_size_and_the_chart_names_every_case() -> None:
    lines, picture = scale.run(scale.TINY)
    for row in scale.ROWS:
        (shown,) = [line.split(" | ")[1:] for line in lines if line.startswith(f"| {row.name} |")]
        assert len(shown) == len(scale.TINY.partitions), row.name
    texts = [each.text or "" for each in ET.fromstring(picture).findall(".//{*}text")]
    for name in scale.CASES.values():
        assert any(text.startswith(f"{name}: ") for text in texts), name


def test_a_broker_that_lacks_a_partition_is_found() -> None:
    world = ControllerWorld(brokers=4, partitions=20, topic_partitions=10)
    world.elect()
    world.check()
    world.brokers[2].metadata[13] = -1
    with pytest.raises(AssertionError, match="broker 2"):
        world.check()


def test_requests_about_a_dead_broker_are_counted_and_reach_the_others() -> None:
    world = ControllerWorld(brokers=4, partitions=20, topic_partitions=10)
    world.elect()
    world.take_costs()
    world.die(4)
    world.check()
    costs = world.take_costs()
    assert costs.requests >= 2 * len(world.brokers)
    assert costs.decoding_s.keys() == world.brokers.keys()
