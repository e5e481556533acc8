"""The jars of Kafka and of Spark's connector for it that tests use; Maven fetches what deploy/*/pom.xml name.

The first call on a machine downloads them into Maven's own repository; later ones need no network. Nothing
here knows what the jars are used for.
Source: maven-dependency-plugin, build-classpath.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.nodes import tail
from tests.support.zookeeper import TEST_JVM_OPTIONS

_DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
POM = _DEPLOY / "kafka" / "pom.xml"
CONNECTOR_POM = _DEPLOY / "spark-kafka" / "pom.xml"
MAVEN_DEADLINE_S = 180.0
#: Option of a virtual machine whose log nobody reads.
NO_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
#: {(pom.xml, version asked for): its class path}, so that Maven runs once a process.
_known: dict[tuple[Path, str], str] = {}


class KafkaJarsError(RuntimeError):
    """The jars cannot be had; says why and what to do."""


def kafka_class_path(folder: Path) -> str:
    """Return the class path of kafka-clients and what it needs.

    Args:
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: there is no Maven, or it cannot fetch the jars.
    """
    return _class_path(POM, folder)


def spark_connector_jars(folder: Path) -> str:
    """Return the jars of Spark's Kafka connector as the setting spark.jars takes them.

    Args:
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: there is no Maven, or it cannot fetch the jars.
    """
    return _class_path(CONNECTOR_POM, folder).replace(":", ",")


def ecosystem_class_path(system: str, folder: Path) -> str:
    """Return the class path of a system that runs on the brokers: connect, streams or flink.

    Args:
        system: a folder of deploy/ecosystem.
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: there is no Maven, or it cannot fetch the jars.
    """
    return _class_path(_DEPLOY / "ecosystem" / system / "pom.xml", folder)


def client_class_path(pom: Path, version: str, folder: Path) -> str:
    """Return the class path of one version of a client.

    Args:
        pom: a pom.xml whose property client.version says which.
        version: the version.
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: there is no Maven, or it cannot fetch the jars.
    """
    return _class_path(pom, folder, version)


def _class_path(pom: Path, folder: Path, version: str = "") -> str:
    if (pom, version) in _known:
        return _known[pom, version]
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaJarsError("no mvn on PATH: run deploy/ensure-maven.sh, or install Maven (Debian: maven)")
    found, output = folder / "class-path", folder / "maven.log"
    command = [
        *(maven, "-B", "-q", "-f", str(pom), "dependency:build-classpath"),
        f"-Dmdep.outputFile={found}",
        *([f"-Dclient.version={version}"] if version else []),
    ]
    with output.open("wb") as log:
        done = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, timeout=MAVEN_DEADLINE_S, check=False
        )
    if done.returncode != 0:
        raise KafkaJarsError(
            f"Maven cannot fetch what {pom} names; is its repository reachable?\n{tail(output)}"
        )
    _known[pom, version] = found.read_text(encoding="utf-8").strip()
    return _known[pom, version]


def kafka_java_command(source: Path, folder: Path, log_level: str = "off") -> list[str]:
    """Command line of a small virtual machine that runs a source file with Kafka's classes.

    Args:
        source: a Java program in one file.
        folder: where Maven may leave a file.
        log_level: of what goes to standard error.

    Raises:
        KafkaJarsError: there is no Java, or the jars cannot be had.
    """
    java = shutil.which("java")
    if java is None:
        raise KafkaJarsError(
            "no java on PATH: run deploy/ensure-java.sh, or install a JDK of Java 17 or later"
        )
    log = NO_LOG.replace("=off", f"={log_level}")
    return [java, *TEST_JVM_OPTIONS, log, "-cp", kafka_class_path(folder), str(source)]


def kafka_tool_command(name: str, folder: Path) -> list[str]:
    """Command line of a small virtual machine that runs one of Kafka's tools.

    Args:
        name: the tool's class.
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: Java or the jars cannot be had.
    """
    java = shutil.which("java")
    if java is None:
        raise KafkaJarsError("no java on PATH: run deploy/ensure-java.sh, or install Java 17")
    return [java, *TEST_JVM_OPTIONS, NO_LOG, "-cp", kafka_class_path(folder), name]
