"""Imports between a folder's modules: at the top, inside functions and for type checkers.

A name that a package's ``__init__.py`` re-exports counts for the module that defines it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

Reexports = dict[tuple[str, str], tuple[str, str]]


def imports_of(folder: Path, root: Path) -> dict[Path, set[Path]]:
    """Each file under ``folder`` with the files there that it imports; names begin at ``root``."""
    files = {_module_of(path, root): path for path in sorted(folder.rglob("*.py"))}
    trees = {module: ast.parse(path.read_text()) for module, path in files.items()}
    reexports: Reexports = {}
    for module, tree in trees.items():
        if files[module].name == "__init__.py":
            for source, name, known_as in _imported(module, True, tree):
                reexports[module, known_as] = (source, name)
    graph: dict[Path, set[Path]] = {}
    for module, tree in trees.items():
        is_package = files[module].name == "__init__.py"
        found: set[Path] = set()
        if not (is_package and _only_passes_on(tree)):
            for source, name, _ in _imported(module, is_package, tree):
                target = _definer(files, reexports, source, name)
                if target is not None:
                    found.add(files[target])
        graph[files[module]] = found - {files[module]}
    return graph


def _module_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _only_passes_on(tree: ast.Module) -> bool:
    defines = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return not any(isinstance(node, defines) for node in tree.body)


def _imported(module: str, is_package: bool, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(module, name in it or "", name here) of every import statement."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((source, alias.name, alias.asname or alias.name) for alias in node.names)


def _definer(
    files: dict[str, Path], reexports: Reexports, source: str, name: str, depth: int = 0
) -> str | None:
    if f"{source}.{name}" in files:
        return f"{source}.{name}"
    if source not in files:
        return None
    if (source, name) in reexports and depth < len(reexports):
        return _definer(files, reexports, *reexports[source, name], depth + 1)
    return source
