"""The jars of Apache Kafka that tests read messages with; Maven fetches them as deploy/kafka/pom.xml says.

The first call on a machine downloads them into Maven's own repository; later ones need no network. Nothing
here knows what the jars are used for.
Source: maven-dependency-plugin, build-classpath.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.nodes import tail
from tests.support.zookeeper import TEST_JVM_OPTIONS

POM = Path(__file__).resolve().parents[2] / "deploy" / "kafka" / "pom.xml"
MAVEN_DEADLINE_S = 180.0


class KafkaJarsError(RuntimeError):
    """The jars cannot be had; says why and what to do."""


@cache
def kafka_class_path(folder: Path) -> str:
    """Return the class path of kafka-clients and what it needs.

    Args:
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: there is no Maven, or it cannot fetch the jars.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaJarsError("no mvn on PATH: run deploy/ensure-maven.sh, or install Maven (Debian: maven)")
    found, output = folder / "class-path", folder / "maven.log"
    command = [
        *(maven, "-B", "-q", "-f", str(POM), "dependency:build-classpath"),
        f"-Dmdep.outputFile={found}",
    ]
    with output.open("wb") as log:
        done = subprocess.run(
            command, stdout=log, stderr=subprocess.STDOUT, timeout=MAVEN_DEADLINE_S, check=False
        )
    if done.returncode != 0:
        raise KafkaJarsError(
            f"Maven cannot fetch what {POM} names; is its repository reachable?\n{tail(output)}"
        )
    return found.read_text(encoding="utf-8").strip()


def kafka_java_command(source: Path, folder: Path) -> list[str]:
    """Command line of a small virtual machine that runs a source file with Kafka's classes.

    Args:
        source: a Java program in one file.
        folder: where Maven may leave a file.

    Raises:
        KafkaJarsError: there is no Java, or the jars cannot be had.
    """
    java = shutil.which("java")
    if java is None:
        raise KafkaJarsError(
            "no java on PATH: run deploy/ensure-java.sh, or install a JDK of Java 17 or later"
        )
    return [java, *TEST_JVM_OPTIONS, "-cp", kafka_class_path(folder), str(source)]


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
    return [java, *TEST_JVM_OPTIONS, "-cp", kafka_class_path(folder), name]
