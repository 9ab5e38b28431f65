"""Runs Apache Kafka's own tools: plain ``java -cp``, with the jars that ``make test`` fetched."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
KAFKA_JARS = ROOT / ".cache" / "kafka"
KAFKA4_JARS = ROOT / ".cache" / "kafka4"
"""Of a client with transactions of version 2."""
STREAMS_JARS = ROOT / ".cache" / "streams"
CONNECT_JARS = ROOT / ".cache" / "connect"
SPARK_JARS = ROOT / ".cache" / "spark"
_LOGGING = Path(__file__).with_name("log4j.properties")

# For a short start: most of these processes live for a second.
_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")


class ToolFailed(AssertionError):
    """A tool ended with an error; the message has its output."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def command(main: str, *arguments: str, jars: Path = KAFKA_JARS) -> list[str]:
    if not any(jars.glob("kafka-clients-*.jar")):
        raise FileNotFoundError(f"no jars in {jars}: run `make .cache/{jars.name}.done`")
    classpath = str(jars / "*")
    logging = f"-Dlog4j.configuration={_LOGGING.as_uri()}"
    return [java(), *_FLAGS, logging, "-cp", classpath, main, *arguments]


def run(
    main: str,
    *arguments: str,
    stdin: str = "",
    timeout_s: float = 60.0,
    jars: Path = KAFKA_JARS,
) -> str:
    """Runs a main class; returns its standard output. ToolFailed unless it exits with 0."""
    done = subprocess.run(
        command(main, *arguments, jars=jars),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ToolFailed(f"{main} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
