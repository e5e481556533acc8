"""How the JVM of a Spark runs that lives as long as a test: it compiles little, one thread collects."""

from __future__ import annotations

from typing import Final

#: settings of a session
SHORT_LIVED: Final = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
