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


def command(
    main: str, *arguments: str, jars: Path = KAFKA_JARS, classes: Path | None = None
) -> list[str]:
    """``classes``: a folder of :func:`compile_program`, where ``main`` is."""
    if not any(jars.glob("kafka-clients-*.jar")):
        raise FileNotFoundError(f"no jars in {jars}: run `make .cache/{jars.name}.done`")
    classpath = os.pathsep.join(str(one) for one in (classes, jars / "*") if one)
    logging = f"-Dlog4j.configuration={_LOGGING.as_uri()}"
    return [java(), *_FLAGS, logging, "-cp", classpath, main, *arguments]


def compile_program(source: Path, folder: Path, jars: Path = KAFKA_JARS) -> Path:
    """Compiles a program that is started often. Returns the folder with its classes."""
    home = os.environ.get("JAVA_HOME")
    compiler = str(Path(home, "bin", "javac")) if home else "javac"
    arguments = ["-cp", str(jars / "*"), "-d", str(folder), str(source)]
    subprocess.run([compiler, *arguments], check=True, timeout=120)
    return folder


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
