"""Prints pyproject.toml's requirements, one a line, for ``pip install -r /dev/stdin``.

``python ci/requirements.py`` prints the run-time dependencies, ``... demo dev`` those and the named
extras. Extras that name the project's own extras are expanded, so that learning the dependencies
does not build the project.
"""

import re
import sys
import tomllib
from pathlib import Path

_OWN_EXTRA = re.compile(r"pyrklog\[(?P<extras>[a-z, ]+)\]")


def requirements(project: dict[str, object], extras: list[str]) -> list[str]:
    """The requirements of the project and of ``extras``, sorted; KeyError for an unknown extra."""
    table = project["optional-dependencies"]
    runtime = project["dependencies"]
    assert isinstance(table, dict)
    assert isinstance(runtime, list)
    found: set[str] = set(runtime)
    unresolved = list(extras)
    while unresolved:
        for requirement in table[unresolved.pop()]:
            own = _OWN_EXTRA.fullmatch(requirement)
            if own:
                unresolved += [name.strip() for name in own["extras"].split(",")]
            else:
                found.add(requirement)
    return sorted(found)


def main() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    print("\n".join(requirements(tomllib.loads(text)["project"], sys.argv[1:])))


if __name__ == "__main__":
    main()
