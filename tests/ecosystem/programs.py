"""Java programs that run on the brokers: one source file each, which the virtual machine compiles itself."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from tests.support.java import JavaProgram
from tests.support.kafka_jars import KafkaJarsError, ecosystem_class_path

_FOLDER: Final = Path(__file__).parent / "java"
_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
#: Flink's serialisation looks into Java's own collections.
_OPENED: Final = tuple(
    word
    for name in ("lang", "util", "util.concurrent")
    for word in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")
)


def java_program(system: str, source: str, folder: Path, *arguments: str) -> JavaProgram:
    """Start a program.

    Args:
        system: a folder of deploy/ecosystem.
        source: the name of its file.
        folder: for what it prints.
        arguments: what it is given.

    Raises:
        KafkaJarsError: Java or the jars cannot be had.
    """
    java = shutil.which("java")
    if java is None:
        raise KafkaJarsError("no java on PATH: run deploy/ensure-java.sh, or install Java 17")
    folder.mkdir(exist_ok=True)
    classes = ecosystem_class_path(system, folder)
    return JavaProgram([java, *_JVM, *_OPENED, "-cp", classes, str(_FOLDER / source), *arguments], folder)
