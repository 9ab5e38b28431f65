"""Runs Apache Kafka's own tools: plain ``java -cp``, with the jars that ``make test`` fetched."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
KAFKA_JARS = ROOT / ".cache" / "kafka"
SPARK_JARS = ROOT / ".cache" / "spark"
_LOGGING = Path(__file__).with_name("log4j.properties")

# For a short start: most of these processes live for a second.
_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")


class ToolFailed(AssertionError):
    """A tool ended with an error; the message has its output."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def command(main: str, *arguments: str) -> list[str]:
    if not any(KAFKA_JARS.glob("kafka-clients-*.jar")):
        raise FileNotFoundError(f"no jars in {KAFKA_JARS}: run `make .cache/kafka.done`")
    classpath = str(KAFKA_JARS / "*")
    logging = f"-Dlog4j.configuration={_LOGGING.as_uri()}"
    return [java(), *_FLAGS, logging, "-cp", classpath, main, *arguments]


def run(main: str, *arguments: str, stdin: str = "", timeout_s: float = 60.0) -> str:
    """Runs a main class; returns its standard output. ToolFailed unless it exits with 0."""
    done = subprocess.run(
        command(main, *arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ToolFailed(f"{main} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
