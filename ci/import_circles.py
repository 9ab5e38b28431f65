"""Files that import each other in a circle, for each crate and each Python folder.

`python ci/import_circles.py [ROOT]` prints how long the longest circle of each is, and its files.
ci/check_structure.py fails where one is longer than it may be.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from ci import python_imports, rust_imports

Graph = dict[Path, set[Path]]

CIRCLE_FILES_MAX = 2
PYTHON_FOLDERS = {"python/pyrklog": "python", "tests": "", "benches": "", "ci": "", "demo": ""}


def graphs(root: Path) -> Iterator[tuple[str, Graph]]:
    """(name, imports of its files) of each crate and Python folder under `root`."""
    for folder in ("rust", "benches"):
        for manifest in sorted((root / folder).glob("*/Cargo.toml")):
            name = manifest.parent.relative_to(root).as_posix()
            yield name, rust_imports.imports_of(manifest.parent / "src")
    for folder, base in PYTHON_FOLDERS.items():
        yield folder, python_imports.imports_of(root / folder, root / base)


def circles(graph: Graph) -> list[list[Path]]:
    """The strongly connected parts of more than one file, longest first (Tarjan 1972)."""
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []
    found: list[list[Path]] = []

    def visit(node: Path) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def main() -> int:
    """Prints the circles of the tree given as the only argument, by default of this one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]
    for name, graph in graphs(root):
        found = circles(graph)
        longest = len(found[0]) if found else 1
        print(f"{name:16} {len(graph):4} files, longest circle {longest}")
        for circle in found:
            print("   ", *(path.relative_to(root / name).as_posix() for path in circle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
