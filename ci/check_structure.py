"""The rules of design.md that no other tool enforces, as a failing check.

Imports, import circles, the purity of machines, ``unsafe``, the length of files and functions, and
tests that sleep. ``python ci/check_structure.py [ROOT]`` prints one line a violation and exits with
1 if there is any.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ci import import_circles, rust_source

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

RUST_ROOTS = ("rust", "benches")
PYTHON_ROOTS = ("python", "tests", "ci", "benches", "demo")
SLEEPER = "tests/support/waiting.py"
PACKAGE = "python/pyrklog"
CORE = "pyrklog._core"
CORE_IMPORTERS = (
    "python/pyrklog/plane/clock.py",
    "python/pyrklog/plane/core_plane.py",
    "python/pyrklog/groups/core_types.py",
    "python/pyrklog/plane/offline.py",
    "python/pyrklog/scanning/core_scan.py",
    "python/pyrklog/producing/core_produce.py",
    "python/pyrklog/benchmark/native.py",
    "python/pyrklog/telemetry/core_telemetry.py",
)

# Decisions get these as arguments.
# fmt: off
IMPURE = frozenset({
    "anyio", "asyncio", "multiprocessing", "os", "queue", "random", "secrets", "select",
    "selectors", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading",
    "time", "trio", "uuid",
})
# fmt: on
PURE_FOLDERS = ("balance", "protocol")
# Parsers of foreign bytes, tested with every cut and flipped bit: bytes in, values out.
PURE_FILES = frozenset({"python/pyrklog/adoption/batches.py", "python/pyrklog/adoption/kraft.py"})
# Must not load before a subcommand needs it.
SLOW_FOR_CLI = frozenset(
    {
        "pyrklog.broker",
        "pyrklog.plane.core_plane",
        "pyrklog.plane.seam",
        "pyrklog.plane.offline",
        "pyrklog.scanning",
        "pyrklog.producing",
        "pyrklog.serdes",
        "pyrklog.mirror",
        "confluent_kafka",
        "trio",
    }
)

# An optional package: imports of the module that needs it must be lazy.
KAZOO_MODULE = "pyrklog.metastore.zookeeper"
KAZOO_IMPORTERS = {
    "python/pyrklog/adoption/zookeeper.py": "lazily",
    "python/pyrklog/metastore/zookeeper.py": "at its top",
    "python/pyrklog/metastore/zookeeper_handler.py": "at its top",
}

# Libraries that one module each imports, and parts of libraries: the longest name counts.
LIBRARY_IMPORTERS: dict[str, str | tuple[str, ...]] = {
    "hypercorn": "python/pyrklog/observability/web.py",
    "starlette": "python/pyrklog/observability/web.py",
    "prometheus_client": "python/pyrklog/observability/client_exposition.py",
    "opentelemetry": "python/pyrklog/observability/report_otlp.py",
    "opentelemetry.proto": "python/pyrklog/telemetry/otlp.py",
    "google.protobuf": "python/pyrklog/serdes/protobuf.py",
    "google.protobuf.message": (
        "python/pyrklog/telemetry/otlp.py",
        "python/pyrklog/serdes/protobuf.py",
    ),
    "tomlkit": "python/pyrklog/cli/profile_file.py",
    "yaml": "python/pyrklog/cli/profile_import.py",
}

# Allowed dependencies among our crates.
CRATE_DEPENDENCIES = {
    "wire": frozenset[str](),
    # A crate's own tests enable its feature ``testing``.
    "arena": frozenset({"arena"}),
    "compression": frozenset({"wire"}),
    "log": frozenset({"wire", "arena", "compression", "log"}),
    "base": frozenset({"wire"}),
    "control": frozenset({"wire", "log", "base"}),
    "replica": frozenset({"wire", "log", "base", "control"}),
    "storage": frozenset({"wire", "arena", "log", "base", "control", "replica"}),
    "requests": frozenset({"wire", "arena", "log", "base", "control", "replica", "storage"}),
    "dataplane": frozenset(
        {"wire", "arena", "log", "base", "control", "replica", "storage", "requests"}
    ),
    "client": frozenset({"wire"}),
    "scan": frozenset({"wire", "compression", "client"}),
    "produce": frozenset({"wire", "compression", "client"}),
    "loadgen": frozenset({"wire"}),
    "fuzz": frozenset({"wire", "log", "scan"}),
    "floors": frozenset({"wire", "loadgen"}),
    "bridge": frozenset(
        {"wire", "compression", "log", "dataplane", "client", "scan", "produce", "loadgen"}
    ),
}
# Paths that a crate's code, except tests, must not name, and why.
_NO_CLOCK = (r"\b(?:Instant|SystemTime)\b", "reads a clock; time is an argument here")
_NO_SOCKET = (r"\b(?:std::net::(?!IpAddr\b)|rustix::net\b)", "knows sockets")
_NO_FILE = (r"\b(?:std::fs|rustix::fs)\b", "touches files")
_NO_THREAD = (r"\bstd::thread\b", "starts threads, or waits")
CRATE_FORBIDS = {
    "wire": (_NO_CLOCK, _NO_SOCKET, _NO_FILE),
    "arena": (_NO_CLOCK, _NO_SOCKET),
    "compression": (_NO_CLOCK, _NO_SOCKET, _NO_FILE, _NO_THREAD),
    "log": (_NO_CLOCK, _NO_SOCKET),
    "base": (_NO_SOCKET, _NO_FILE),
    "control": (_NO_CLOCK, _NO_SOCKET, _NO_FILE),
    "replica": (_NO_CLOCK, _NO_SOCKET, _NO_FILE, _NO_THREAD),
    "storage": (_NO_SOCKET,),
    "requests": (_NO_CLOCK, _NO_SOCKET, _NO_FILE, _NO_THREAD),
    "dataplane": (),
    "client": (_NO_FILE, _NO_THREAD),
    "scan": (_NO_SOCKET, _NO_FILE),
    "produce": (_NO_SOCKET, _NO_FILE),
    "loadgen": (),
    "floors": (),
    "fuzz": (_NO_CLOCK, _NO_SOCKET, _NO_FILE),
    "bridge": (_NO_CLOCK, _NO_SOCKET, _NO_FILE),
}
# The folders of a crate's ``src``, and the packages and modules of pyrklog, lowest first: a file
# imports from its own and from lower ones, also lazily and for type checkers.
# fmt: off
ROOMS = {
    "rust/dataplane": ("net", "follower"),
    PACKAGE: (
        "base", "security", "scanning", "serdes", "producing", "benchmark", "balance", "mirror",
        "spark", "__init__", "redaction", "protocol", "errors", "metastore", "config", "plane",
        "telemetry", "cluster", "start", "membership", "replication", "coordinators", "peers",
        "groups", "transactions", "lag", "controller", "handlers", "admin", "adoption",
        "observability", "broker", "dev", "deploy", "cli", "testing", "__main__",
    ),
}
# fmt: on
# The files that act on what handlers return. A handler gets a ClientContext and an output, never a
# connection's state.
CONNECTION_STATE = "rust/requests/src/client.rs"
CONNECTION_STATE_IMPORTERS = frozenset(
    {
        "rust/requests/src/admission.rs",
        "rust/requests/src/broker_connections.rs",
        "rust/requests/src/carry_out.rs",
        "rust/requests/src/client_timers.rs",
        "rust/requests/src/control_replies.rs",
        "rust/requests/src/dispatch.rs",
        "rust/requests/src/produce/back_pressure.rs",
        "rust/requests/src/produce/reply.rs",
        "rust/requests/src/resume.rs",
        "rust/requests/src/timed_work.rs",
    }
)
# Crates that may contain ``unsafe``: memory of earlier processes has no other access. The binding's
# macros expand to it.
UNSAFE_ALLOWED = frozenset({"arena"})
FORBID_UNSAFE_NOT_NEEDED = frozenset({"bridge"})


@dataclass(frozen=True, order=True)
class Violation:
    """Where a rule is broken, and which."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Import:
    """A module named by an import statement; ``eager`` if it runs when the module is imported."""

    module: str
    line: int
    eager: bool


def check(root: Path) -> list[Violation]:
    """All violations under ``root``, sorted."""
    return sorted([*_check_python(root), *_check_rust(root), *_check_arrows(root)])


# --- Python --------------------------------------------------------------------------------------


def _check_python(root: Path) -> Iterator[Violation]:
    trees: dict[str, ast.Module] = {}
    for folder in PYTHON_ROOTS:
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            source = path.read_text()
            yield from _check_file_length(name, source)
            trees[name] = ast.parse(source, name)
            if name.startswith("tests/") and name != SLEEPER:
                yield from _check_sleeps(name, source, trees[name])
    for name, tree in trees.items():
        yield from _check_python_functions(name, tree)
    package = {name: imports(name, tree) for name, tree in trees.items() if _in_package(name)}
    for name, found in package.items():
        # ``from a import b`` counts as ``a`` and ``a.b``: one violation a line is enough.
        by_line = {v.line: v for v in reversed([*_check_imports(name, found, package)])}
        yield from by_line.values()


def _check_imports(
    name: str, found: list[Import], package: dict[str, list[Import]]
) -> Iterator[Violation]:
    yield from _check_core(name, found)
    yield from _check_cli(name, found)
    yield from _check_drivers(name, found, package)
    is_pure = any(f"/{folder}/" in name for folder in PURE_FOLDERS)
    if name.endswith("/machine.py") or is_pure or name in PURE_FILES:
        yield from _check_purity(name, found, package)


def _in_package(name: str) -> bool:
    return name.startswith(f"{PACKAGE}/")


def imports(name: str, tree: ast.Module) -> list[Import]:
    """Every import of a module, relative ones resolved; without those for type checkers."""
    package = name.removeprefix("python/").rsplit("/", 1)[0].split("/")
    found: list[Import] = []

    def visit(node: ast.AST, eager: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for branch in node.orelse:
                visit(branch, eager)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, eager) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found.append(Import(module, node.lineno, eager))
            found.extend(Import(f"{module}.{n.name}", node.lineno, eager) for n in node.names)
        lazy = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, eager and not lazy)

    visit(tree, True)
    return found


def _check_core(name: str, found: list[Import]) -> Iterator[Violation]:
    for item in found:
        if item.module == CORE and name not in CORE_IMPORTERS:
            yield Violation(
                name, item.line, f"imports {CORE}; only {' and '.join(CORE_IMPORTERS)} may"
            )
        owners = _importers(item.module)
        if owners and name.startswith(PACKAGE) and name not in owners:
            may = " and ".join(owners)
            yield Violation(name, item.line, f"imports {item.module}; only {may} may")
        is_kazoo = _named(item.module, frozenset({"kazoo"}))
        how = KAZOO_IMPORTERS.get(name)
        if is_kazoo and (how is None or (item.eager and how == "lazily")):
            yield Violation(name, item.line, f"only {KAZOO_IMPORTERS} import kazoo")
        if item.eager and _named(item.module, frozenset({KAZOO_MODULE})):
            yield Violation(name, item.line, f"imports {KAZOO_MODULE} without being asked to")


def _importers(module: str) -> tuple[str, ...]:
    """The modules that may import it; empty: any may."""
    known = [library for library in LIBRARY_IMPORTERS if _named(module, frozenset({library}))]
    found = LIBRARY_IMPORTERS[max(known, key=len)] if known else ()
    return (found,) if isinstance(found, str) else found


def _check_cli(name: str, found: list[Import]) -> Iterator[Violation]:
    if not name.startswith("python/pyrklog/cli"):
        return
    for item in found:
        if item.eager and _named(item.module, SLOW_FOR_CLI):
            message = f"imports {item.module} at module level, which slows every command"
            yield Violation(name, item.line, message)


def _check_drivers(
    name: str, found: list[Import], package: dict[str, list[Import]]
) -> Iterator[Violation]:
    """In a package with a machine and a driver only the driver may import trio."""
    folder, file = name.rsplit("/", 1)
    if file == "driver.py" or f"{folder}/machine.py" not in package:
        return
    for item in found:
        if file != "machine.py" and _named(item.module, frozenset({"trio"})):
            yield Violation(name, item.line, "imports trio; in this package only driver.py may")


def _check_purity(
    name: str, found: list[Import], package: dict[str, list[Import]]
) -> Iterator[Violation]:
    """A pure module, and all that it imports of the package, imports nothing impure."""
    for item in found:
        chain = _impure_chain(item.module, package, (name,))
        if chain:
            yield Violation(name, item.line, f"must be pure, but imports {' -> '.join(chain)}")


def _impure_chain(
    module: str, package: dict[str, list[Import]], seen: tuple[str, ...]
) -> list[str] | None:
    if module.split(".")[0] in IMPURE:
        return [module]
    base = "python/" + module.replace(".", "/")
    for file in (f"{base}.py", f"{base}/__init__.py"):
        if file in package and file not in seen:
            for item in package[file]:
                rest = _impure_chain(item.module, package, (*seen, file))
                if rest:
                    return [module, *rest]
    return None


def _named(module: str, names: frozenset[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def _check_sleeps(name: str, source: str, tree: ast.Module) -> Iterator[Violation]:
    """A test that sleeps and assumes a result fails on a slow machine."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep":
            said = lines[max(node.lineno - 2, 0)].lstrip()
            if not said.startswith("#"):
                message = f"sleeps, and no comment above says why; to wait there is {SLEEPER}"
                yield Violation(name, node.lineno, message)


def _check_python_functions(name: str, tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            if lines > FUNCTION_LINES_MAX:
                yield _too_long(name, node.lineno, node.name, lines)


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if ast.get_docstring(node, clean=False) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


# --- Rust ----------------------------------------------------------------------------------------


def _check_rust(root: Path) -> Iterator[Violation]:
    manifests = [path for folder in RUST_ROOTS for path in (root / folder).glob("*/Cargo.toml")]
    for manifest in sorted(manifests):
        crate = manifest.parent.name
        if crate not in CRATE_DEPENDENCIES:
            name = manifest.relative_to(root).as_posix()
            yield Violation(name, 1, f"the crate {crate} has no rules in {Path(__file__).name}")
            continue
        yield from _check_manifest(manifest.relative_to(root).as_posix(), crate, manifest)
        for path in sorted(manifest.parent.rglob("*.rs")):
            name = path.relative_to(root).as_posix()
            yield from _check_rust_file(name, crate, path.read_text())


def _check_manifest(name: str, crate: str, manifest: Path) -> Iterator[Violation]:
    table = tomllib.loads(manifest.read_text())
    for dependency in (*table.get("dependencies", {}), *table.get("dev-dependencies", {})):
        ours = dependency.removeprefix("pyrklog-")
        # Itself: a crate's tests may enable its own features.
        if ours not in (dependency, crate) and ours not in CRATE_DEPENDENCIES[crate]:
            yield Violation(name, 1, f"{crate} must not depend on {dependency}")
        if dependency == "pyo3" and crate != "bridge":
            yield Violation(name, 1, "only rust/bridge may know pyo3")
    if not table.get("package", {}).get("autotests", True):
        yield from _check_listed_tests(name, manifest.parent / "tests", table.get("test", []))


def _check_listed_tests(
    name: str, folder: Path, programs: list[dict[str, str]]
) -> Iterator[Violation]:
    """Cargo runs a program that ``Cargo.toml`` names, and the modules of its file; no others."""
    listed = {program["name"] for program in programs}
    for program in sorted(listed):
        listed |= set(
            re.findall(r"^mod (\w+);", (folder / f"{program}.rs").read_text(), re.MULTILINE)
        )
    for path in sorted(folder.glob("*.rs")):
        if path.stem not in listed:
            yield Violation(name, 1, f"tests/{path.name} is in no program, so it is not run")


def _check_rust_file(name: str, crate: str, source: str) -> Iterator[Violation]:
    yield from _check_file_length(name, source)
    code = rust_source.code_only(source)
    root_file = name.endswith(("/src/lib.rs", "/src/main.rs"))
    needs_forbid = crate not in UNSAFE_ALLOWED | FORBID_UNSAFE_NOT_NEEDED
    if root_file and needs_forbid and "#![forbid(unsafe_code)]" not in code:
        yield Violation(name, 1, "lacks #![forbid(unsafe_code)]")
    if crate not in UNSAFE_ALLOWED:
        yield from _forbid(name, code, r"\bunsafe\b", "writes `unsafe`")
    if crate != "bridge":
        yield from _forbid(name, code, r"\bpyo3\b", "names pyo3; only rust/bridge may know it")
    if "/src/" in name:
        shipped = rust_source.without_tests(code)
        for pattern, why in CRATE_FORBIDS[crate]:
            yield from _forbid(name, shipped, pattern, f"{why} (design.md, section 1)")
    for function in rust_source.functions(code):
        if function.lines > FUNCTION_LINES_MAX:
            yield _too_long(name, function.line, function.name, function.lines)


def _forbid(name: str, code: str, pattern: str, message: str) -> Iterator[Violation]:
    for match in re.finditer(pattern, code):
        yield Violation(name, code.count("\n", 0, match.start()) + 1, message)


# --- who imports whom ----------------------------------------------------------------------------


def _check_arrows(root: Path) -> Iterator[Violation]:
    for name, graph in import_circles.graphs(root):
        longest = import_circles.CIRCLE_FILES_MAX
        for circle in import_circles.circles(graph):
            if len(circle) > longest:
                names = " ".join(path.relative_to(root / name).as_posix() for path in circle)
                message = f"{len(circle)} files import each other in a circle: {names}"
                yield Violation(name, 1, f"{message} (at most {longest})")
        yield from _check_rooms(root, name, graph)
        yield from _check_handlers(root, graph)


def _check_rooms(root: Path, name: str, graph: import_circles.Graph) -> Iterator[Violation]:
    """No file imports one of a higher folder."""
    rooms = ROOMS.get(name, ())
    heights = {room: height for height, room in enumerate(rooms)}

    if not rooms:
        return
    folder = root / name if name == PACKAGE else root / name / "src"

    def room_of(path: Path) -> str:
        return path.relative_to(folder).parts[0].removesuffix(path.suffix)

    def height_of(path: Path) -> int:
        return heights.get(room_of(path), len(rooms))

    for path, imported in graph.items():
        # Of a crate, files in no room stand above all.
        if name == PACKAGE and room_of(path) not in heights:
            message = f"{room_of(path)} is in none of the rooms of {Path(__file__).name}"
            yield Violation(path.relative_to(root).as_posix(), 1, message)
        for other in sorted(imported):
            if height_of(other) > height_of(path):
                above = other.relative_to(root).as_posix()
                yield Violation(path.relative_to(root).as_posix(), 1, f"imports {above}, above it")


def _check_handlers(root: Path, graph: import_circles.Graph) -> Iterator[Violation]:
    for path, imported in graph.items():
        name = path.relative_to(root).as_posix()
        if root / CONNECTION_STATE in imported and name not in CONNECTION_STATE_IMPORTERS:
            message = f"imports {CONNECTION_STATE}; handlers return outcomes and do not see it"
            yield Violation(name, 1, message)


# --- length --------------------------------------------------------------------------------------


def _check_file_length(name: str, source: str) -> Iterator[Violation]:
    lines = source.count("\n") + (not source.endswith("\n"))
    if lines > FILE_LINES_MAX:
        yield Violation(name, 1, f"{lines} lines; split it by state or step ({FILE_LINES_MAX})")


def _too_long(name: str, line: int, function: str, lines: int) -> Violation:
    return Violation(name, line, f"{function} has {lines} lines; at most {FUNCTION_LINES_MAX}")


def main() -> int:
    """Checks the tree given as the only argument, by default the one that holds this file."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    violations = check(root)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
