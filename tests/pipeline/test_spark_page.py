"""What docs/clients/spark.md shows of Spark's sources and sink, run as it stands there, in one namespace.

Source: docs/clients/spark.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quorum.local import ensemble_in_thread
from tests.site.pages import blocks_of
from tests.site.programs import readdressed
from tests.support.topic_cluster import Record, topic_cluster


# Other tests run the same formats; this one says that the page is right.
@pytest.mark.long
def test_the_page_reads_the_change_log_and_copies_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    with topic_cluster() as cluster, ensemble_in_thread(nodes=1) as quorum:
        cluster.create("orders", 2)
        cluster.create("events", 1)
        cluster.send("orders", [Record(n % 2, b"order", str(n).encode()) for n in range(20)])
        names: dict[str, Any] = {"spark": spark}
        addresses = {
            "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094": cluster.bootstrap,
            "http://127.0.0.1:8181,http://127.0.0.1:8182,http://127.0.0.1:8183": quorum.admin_urls[0],
            "/data/checkpoints": str(tmp_path),
        }
        for block in blocks_of("docs/clients/spark.md"):
            if block.language == "python":
                exec(readdressed(block.text, addresses), names)
        copying = names["query"]
        copying.processAllAvailable()
        copying.stop()
        assert names["changes"].isStreaming and "zxid" in names["changes"].columns
        copied = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
        rows = copied.option("subscribe", "events").load().collect()
        assert sorted(int(row.key) for row in rows) == list(range(20))
        assert {bytes(row.value) for row in rows} == {b"ORDER"}
