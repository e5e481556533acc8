"""How the JVM of a Spark runs that lives as long as a test: it compiles little, one thread collects."""

from __future__ import annotations

from typing import Final

#: settings of a session
SHORT_LIVED: Final = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
#: settings for hundreds of rows: plans are interpreted, since compiling one takes longer than running it
SMALL_PLANS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
