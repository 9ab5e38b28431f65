from pathlib import Path

import pytest

from ci.check_structure import FILE_LINES_MAX, FUNCTION_LINES_MAX, check
from ci.rust_source import code_only, functions, without_tests

CLEAN = {
    "python/pyrklog/plane/core_plane.py": "from pyrklog import _core\n",
    "python/pyrklog/controller/machine.py": "from ..base.names import NAME\nimport typing\n",
    "python/pyrklog/controller/driver.py": "import trio\nfrom . import machine\n",
    "python/pyrklog/base/names.py": "NAME = 1\n",
    "python/pyrklog/cli/serve.py": "def serve() -> None:\n    from pyrklog import broker\n",
    "rust/log/Cargo.toml": "[dependencies]\npyrklog-wire.workspace = true\n",
    "rust/log/src/lib.rs": (
        "#![forbid(unsafe_code)]\n// unsafe in a comment, std::net too\n"
        'const A: &str = "unsafe pyo3 { ";\n'
        "#[cfg(test)]\nmod tests {\n    use std::time::SystemTime;\n}\n"
    ),
}


def plant(root: Path, files: dict[str, str]) -> list[str]:
    for name, text in (CLEAN | files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(violation) for violation in check(root)]


def test_a_clean_tree_passes(tmp_path: Path) -> None:
    assert plant(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("python/pyrklog/broker.py", "from . import _core\n", ":1: imports pyrklog._core"),
        ("python/pyrklog/broker.py", "import pyrklog._core\n", ":1: imports pyrklog._core"),
        (
            "python/pyrklog/handlers/topics.py",
            "def f() -> None:\n    from pyrklog._core import Request\n",
            ":2: imports pyrklog._core",
        ),
        ("python/pyrklog/broker.py", "from kazoo.client import X\n", "import kazoo"),
        (
            "python/pyrklog/observability/observer.py",
            "from starlette.routing import Route\n",
            "imports starlette.routing; only python/pyrklog/observability/web.py may",
        ),
        ("python/pyrklog/adoption/zookeeper.py", "import kazoo\n", "import kazoo"),
        (
            "python/pyrklog/broker.py",
            "from pyrklog.metastore.zookeeper import connect\n",
            "without being asked to",
        ),
        ("python/pyrklog/adoption/kraft.py", "import os\n", "must be pure, but imports os"),
        ("python/pyrklog/controller/machine.py", "import time\n", "must be pure, but imports time"),
        (
            "python/pyrklog/controller/machine.py",
            "from os.path import join\n",
            "must be pure, but imports os.path",
        ),
        (
            "python/pyrklog/base/names.py",
            "import random\n",
            "controller/machine.py:1: must be pure, but imports pyrklog.base.names -> random",
        ),
        ("python/pyrklog/protocol/codec.py", "import trio\n", "must be pure, but imports trio"),
        ("python/pyrklog/controller/state.py", "import trio\n", "only driver.py may"),
        (
            "python/pyrklog/cli/serve.py",
            "from pyrklog.broker import run\n",
            ":1: imports pyrklog.broker at module level",
        ),
        (
            "python/pyrklog/config/option.py",
            "from pyrklog.controller.machine import NAME\n",
            "option.py:1: imports python/pyrklog/controller/machine.py, above it",
        ),
        (
            "python/pyrklog/config/option.py",
            "def f() -> None:\n    from ..controller import driver\n",
            "option.py:1: imports python/pyrklog/controller/driver.py, above it",
        ),
        (
            "python/pyrklog/config/option.py",
            "import typing\nif typing.TYPE_CHECKING:\n    import pyrklog.controller.driver\n",
            "option.py:1: imports python/pyrklog/controller/driver.py, above it",
        ),
        ("python/pyrklog/new.py", "", "new.py:1: new is in none of the rooms"),
        ("python/pyrklog/new/a.py", "", "a.py:1: new is in none of the rooms"),
        ("rust/log/src/a.rs", "use std::net::TcpStream;\n", ":1: knows sockets"),
        ("rust/log/src/a.rs", "fn a() { SystemTime::now(); }\n", ":1: reads a clock"),
        ("rust/log/src/a.rs", "\nfn a() { unsafe { b() } }\n", ":2: writes `unsafe`"),
        ("rust/log/src/a.rs", "use pyo3::prelude::*;\n", ":1: names pyo3"),
        ("rust/log/src/lib.rs", "//! Doc.\n", ":1: lacks #![forbid(unsafe_code)]"),
        ("rust/log/Cargo.toml", "[dependencies]\npyo3 = '1'\n", "only rust/bridge may know pyo3"),
        (
            "rust/log/Cargo.toml",
            "[dev-dependencies]\npyrklog-dataplane.workspace = true\n",
            "log must not depend on pyrklog-dataplane",
        ),
        ("rust/new/Cargo.toml", "", "the crate new has no rules"),
        ("benches/new/Cargo.toml", "", "the crate new has no rules"),
        ("tests/test_a.py", "\n" * (FILE_LINES_MAX + 1), f"{FILE_LINES_MAX + 1} lines"),
        ("tests/test_a.py", "import time\ntime.sleep(1)\n", ":2: sleeps, and no comment above"),
        ("rust/log/src/a.rs", "\n" * (FILE_LINES_MAX + 1), f"{FILE_LINES_MAX + 1} lines"),
        (
            "tests/test_a.py",
            "def long() -> None:\n" + "    print()\n" * FUNCTION_LINES_MAX,
            f":1: long has {FUNCTION_LINES_MAX + 1} lines",
        ),
        (
            "rust/log/src/a.rs",
            "fn long() {\n" + "    a();\n" * (FUNCTION_LINES_MAX - 1) + "}\n",
            f":1: long has {FUNCTION_LINES_MAX + 1} lines",
        ),
    ],
)
def test_violation_in_a_clean_tree_is_found(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    found = plant(tmp_path, {name: text})
    assert len(found) == 1, found
    assert expected in found[0]


def test_parts_of_a_library_have_importers_of_their_own(tmp_path: Path) -> None:
    reports, pushed = (
        f"python/pyrklog/{name}.py" for name in ("observability/report_otlp", "telemetry/otlp")
    )
    whole, part = "import opentelemetry.sdk\n", "from opentelemetry.proto import metrics\n"
    assert plant(tmp_path, {reports: whole, pushed: part}) == []
    wrong = plant(tmp_path, {reports: part, pushed: whole})
    assert [line.partition(": ")[2] for line in wrong] == [
        f"imports opentelemetry.proto; only {pushed} may",
        f"imports opentelemetry.sdk; only {reports} may",
    ]


def test_sleeps_with_a_reason_and_in_the_helper_pass(tmp_path: Path) -> None:
    reasoned = "import time\n# As a client that is slow.\ntime.sleep(1)\n"
    helper = "import time\ntime.sleep(1)\n"
    assert plant(tmp_path, {"tests/test_a.py": reasoned, "tests/support/waiting.py": helper}) == []


def test_imports_for_type_checkers_do_not_count(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import trio\n"
    assert plant(tmp_path, {"python/pyrklog/controller/machine.py": text}) == []


def test_a_docstring_does_not_count_as_length(tmp_path: Path) -> None:
    text = 'def f() -> None:\n    """Long.\n' + "\n" * FUNCTION_LINES_MAX + '    """\n'
    assert plant(tmp_path, {"ci/a.py": text}) == []


def test_braces_in_strings_characters_and_comments_do_not_confuse() -> None:
    source = (
        "fn one<'a>(x: &'a str) -> [u8; 3] {\n"
        "    let brace = '{'; let quote = '\\''; /* } /* nested } */ */\n"
        '    r#"} " }"#; b"\\"}"; "}\n}"; x\n'
        "}\n"
        "fn two();\n"
        "fn three() -> u8 { 3 }\n"
    )
    code = code_only(source)
    assert code.count("\n") == source.count("\n")
    found = functions(code)
    assert [(f.name, f.line, f.lines) for f in found] == [("one", 1, 5), ("three", 7, 1)]


def test_test_modules_are_left_out_but_nothing_else() -> None:
    code = "use a;\n#[cfg(test)]\nmod tests { fn b() {} }\n#[cfg(test)]\nuse c;\nuse d;\n"
    kept = without_tests(code)
    assert [word for word in ("a", "b", "c", "d") if f" {word}" in kept] == ["a", "d"]


def test_a_test_file_that_no_program_has_is_named(tmp_path: Path) -> None:
    manifest = '[package]\nautotests = false\n\n[[test]]\nname = "all"\n'
    files = {
        "rust/log/Cargo.toml": manifest,
        "rust/log/tests/all.rs": "mod harness;\nmod one;\n",
        "rust/log/tests/one.rs": "",
    }
    assert plant(tmp_path, files) == []
    found = plant(tmp_path, files | {"rust/log/tests/two.rs": ""})
    assert found == ["rust/log/Cargo.toml:1: tests/two.rs is in no program, so it is not run"]
