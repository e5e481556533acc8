"""A Spark session for the jobs and the tests: local and on loopback unless a master is named.

Decides what Spark must be started with so that Python sources work: the workers run this Python, nothing
listens beyond loopback, the web interface is off, and the terminal shows only what log4j2.properties lets
through.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*]"
_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
#: What a local session runs with; a job's caller may lay others over it.
LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def start_session(
    app_name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or return the session that `spark-submit` or a caller began.

    Args:
        app_name: shown by Spark.
        master: for example local[2,4] or spark://host:7077; None: what spark-submit gave, else local[*].
        settings: laid over `LOCAL`.
    """
    # Workers of a Python source crash where PATH's python3 is another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkConf  # noqa: PLC0415 - seconds; only what runs Spark loads it
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = SparkConf()
    for name, value in {**LOCAL, **(settings or {})}.items():
        if settings is not None and name in settings:
            conf.set(name, value)
        else:
            conf.setIfMissing(name, value)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, with its own log settings
        conf.setIfMissing("spark.log.level", "ERROR")
    else:
        conf.setIfMissing("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOGGING}")
    if master is not None:
        conf.setMaster(master)
    else:
        conf.setIfMissing("spark.master", LOCAL_MASTER)
    session: SparkSession = SparkSession.builder.config(conf=conf).appName(app_name).getOrCreate()
    return session
