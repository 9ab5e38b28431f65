from pathlib import Path

import pytest

from ci import check_structure, import_circles, python_imports, rust_imports


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(graph: import_circles.Graph, root: Path) -> dict[str, list[str]]:
    return {
        file.relative_to(root).as_posix(): sorted(
            one.relative_to(root).as_posix() for one in imported
        )
        for file, imported in graph.items()
        if imported
    }


def test_rust_imports_lead_to_the_file_that_defines_a_name(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        {
            "lib.rs": "mod a;\nmod b;\nmod c;\npub use b::deep::Thing;\n",
            "a.rs": "use crate::{b::{self, Deep as D}, Thing};\nfn f() { std::mem::take(x) }\n",
            "b.rs": "mod deep;\npub(crate) use deep::{Deep, Other};\npub fn g() {}\n",
            "b/deep.rs": "use super::g;\n#[cfg(test)]\nmod tests { use crate::c::X; }\n",
            "c.rs": "// use crate::a;\nfn h() { crate::b::Other::new(); self::own(); }\n",
            "b/tests.rs": "use crate::c::X;\n",
        },
    )
    assert names(rust_imports.imports_of(source), source) == {
        "a.rs": ["b.rs", "b/deep.rs"],
        "b/deep.rs": ["b.rs"],
        "c.rs": ["b/deep.rs"],
    }


def test_module_that_uses_a_reexported_type_imports_it(tmp_path: Path) -> None:
    source = write(
        tmp_path,
        {
            "lib.rs": "mod b;\n",
            "b.rs": "mod deep;\npub use deep::Deep;\npub struct B { deep: Deep }\n",
            "b/deep.rs": "pub struct Deep;\n",
        },
    )
    assert names(rust_imports.imports_of(source), source) == {"b.rs": ["b/deep.rs"]}


def test_python_imports_lead_to_the_module_that_defines_a_name(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "p/__init__.py": "from p.a import A\n",
            "p/a.py": "import os\nclass A: ...\n",
            "p/b.py": "from p import A, c\ndef f():\n    from .q.d import D\n",
            "p/c.py": "import typing\nif typing.TYPE_CHECKING:\n    import p.b\n",
            "p/q/__init__.py": "",
            "p/q/d.py": "from ..c import C\n",
        },
    )
    assert names(python_imports.imports_of(root / "p", root), root) == {
        "p/b.py": ["p/a.py", "p/c.py", "p/q/d.py"],
        "p/c.py": ["p/b.py"],
        "p/q/d.py": ["p/c.py"],
    }


def test_circles_come_longest_first() -> None:
    a, b, c, d, e, f = (Path(name) for name in "abcdef")
    graph = {a: {b}, b: {a}, c: {d}, d: {e, a}, e: {c}, f: {a, c}}
    assert import_circles.circles(graph) == [[c, d, e], [a, b]]


@pytest.mark.parametrize(
    ("arrows", "is_found"), [({"a": "b", "b": "a"}, False), ({"a": "b", "b": "c", "c": "a"}, True)]
)
def test_a_circle_of_three_files_is_a_violation(
    tmp_path: Path, arrows: dict[str, str], is_found: bool
) -> None:
    files = {
        f"rust/log/src/{importer}.rs": f"use crate::{imported}::{imported.upper()};\n"
        for importer, imported in arrows.items()
    }
    manifest = {"rust/log/Cargo.toml": "", "rust/log/src/lib.rs": "#![forbid(unsafe_code)]\n"}
    found = [str(one) for one in check_structure.check(write(tmp_path, files | manifest))]
    circle = "rust/log:1: 3 files import each other in a circle: src/a.rs src/b.rs src/c.rs"
    assert found == ([f"{circle} (at most 2)"] if is_found else [])


def test_a_room_imports_nothing_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_structure, "ROOMS", {"rust/log": ("base", "net")})
    root = write(
        tmp_path,
        {
            "rust/log/Cargo.toml": "",
            "rust/log/src/lib.rs": "#![forbid(unsafe_code)]\n",
            "rust/log/src/top.rs": "pub struct Y;\n",
            "rust/log/src/net.rs": "pub struct Socket;\n",
            "rust/log/src/net/socket.rs": "use crate::base::clock::Clock;\n",
            "rust/log/src/base/clock.rs": "use crate::net::socket::X;\nuse crate::top::Y;\n",
        },
    )
    source = "rust/log/src"
    assert [str(one) for one in check_structure.check(root)] == [
        f"{source}/base/clock.rs:1: imports {source}/net/socket.rs, above it",
        f"{source}/base/clock.rs:1: imports {source}/top.rs, above it",
    ]


def test_a_handler_that_sees_the_state_of_a_connection_is_found(tmp_path: Path) -> None:
    sees = "use crate::client::Client;\nfn f(client: &Client) {}\n"
    root = write(
        tmp_path,
        {
            "rust/requests/Cargo.toml": "",
            "rust/requests/src/lib.rs": "#![forbid(unsafe_code)]\n",
            "rust/requests/src/client.rs": "pub struct Client;\n",
            "rust/requests/src/dispatch.rs": sees,
            "rust/requests/src/fetch.rs": sees,
        },
    )
    found = [str(one) for one in check_structure.check(root)]
    assert len(found) == 1, found
    assert found[0].startswith("rust/requests/src/fetch.rs:1: imports rust/requests/src/client.rs")
