"""Runs Apache Kafka's own tools: plain ``java -cp``, with the jars that ``make test`` fetched."""

import hashlib
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
KAFKA_JARS = ROOT / ".cache" / "kafka"
KAFKA4_JARS = ROOT / ".cache" / "kafka4"
"""Of a client with transactions of version 2."""
STREAMS_JARS = ROOT / ".cache" / "streams"
CONNECT_JARS = ROOT / ".cache" / "connect"
SPARK_JARS = ROOT / ".cache" / "spark"
_LOGGING = Path(__file__).with_name("log4j.properties")

FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""For a short start: most processes live for seconds, and the better compiler would not pay."""


class ToolFailed(AssertionError):
    """A tool ended with an error; the message has its output."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def command(main: str, *arguments: str, jars: Path = KAFKA_JARS) -> list[str]:
    """``main``: a class, or a file with a program, which is compiled when it runs first."""
    if not any(jars.glob("kafka-clients-*.jar")):
        raise FileNotFoundError(f"no jars in {jars}: run `make .cache/{jars.name}.done`")
    # Jars come first: they have an archive, and a folder has none.
    classpath = str(jars / "*")
    if main.endswith(".java"):
        classpath = os.pathsep.join([classpath, str(_compiled(Path(main), jars))])
        main = Path(main).stem
    logging = f"-Dlog4j.configuration={_LOGGING.as_uri()}"
    flags = (*FLAGS, *archive_flags(jars), "-Xmx512m")
    return [java(), *flags, logging, "-cp", classpath, main, *arguments]


def archive(jars: Path) -> Path:
    """Where the classes of these jars are as :mod:`tests.support.class_archives` prepares them."""
    return jars.with_name(f"{jars.name}.jsa")


def archive_flags(jars: Path) -> tuple[str, ...]:
    """For a process with these jars. An archive that does not fit is ignored without a word."""
    if not archive(jars).exists():
        return ()
    return (f"-XX:SharedArchiveFile={archive(jars)}", "-Xlog:disable")


def _compiled(source: Path, jars: Path) -> Path:
    """The folder with a program's classes. They are kept, since most programs start often."""
    names = sorted(path.name for path in jars.glob("*.jar"))
    made_of = repr((source.read_bytes(), names, java())).encode()
    digest = hashlib.sha256(made_of).hexdigest()[:16]
    folder = ROOT / ".cache" / "programs" / f"{source.stem}-{jars.name}-{digest}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        compiler = str(Path(java()).with_name("javac"))
        flags = [f"-J{flag}" for flag in FLAGS]
        arguments = ["-nowarn", "-cp", str(jars / "*"), "-d", f"{fresh}/classes", str(source)]
        done = subprocess.run(
            [compiler, *flags, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0:
            raise ToolFailed(f"{source} is not compiled\n{done.stdout}\n{done.stderr}")
        # Another process may have been first.
        with suppress(OSError):
            Path(fresh, "classes").rename(folder)
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
