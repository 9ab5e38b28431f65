"""``python -m tests.parity [MODULE…]`` asks Apache Kafka anew and writes the files of answers.

``--against pyrklog`` shows where a broker of ours answers otherwise, and writes nothing.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.parity import answers, brokers
from tests.parity.session import Session
from tests.parity.table import AWAITED, MODULES, scenarios

# Kafka leaves some broken requests without an answer; each takes so long.
_PATIENCE_S = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parity", description=__doc__)
    parser.add_argument("modules", nargs="*", help="of tests/parity/table; all by default")
    parser.add_argument("--reference", choices=list(brokers.REFERENCES))
    parser.add_argument("--against", choices=["pyrklog"])
    given = parser.parse_args()
    if given.against:
        _compare(given.modules or list(MODULES))
        return
    modules = given.modules or [*MODULES, *AWAITED]
    for reference in [given.reference] if given.reference else brokers.REFERENCES:
        with (
            tempfile.TemporaryDirectory(prefix="parity-") as folder,
            brokers.REFERENCES[reference](Path(folder)) as bootstrap,
        ):
            for module in modules:
                answers.save(reference, module, _ask(bootstrap, module))


def _ask(bootstrap: str, module: str) -> answers.Answers:
    found = {}
    for scenario in scenarios(module):
        with Session(bootstrap, _PATIENCE_S) as session:
            found[scenario.name] = session.run(scenario)
    return found


def _compare(modules: list[str]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="parity-") as folder,
        brokers.pyrklog(Path(folder)) as bootstrap,
    ):
        for module in modules:
            ours = _ask(bootstrap, module)
            for scenario, rows in answers.load(next(iter(brokers.REFERENCES)), module).items():
                for title, expected in rows.items():
                    if (found := ours[scenario].get(title)) != expected:
                        print(f"{module} / {scenario} / {title}")
                        print(f"  Kafka   {json.dumps(expected)}")
                        print(f"  pyrklog {json.dumps(found)}")


if __name__ == "__main__":
    main()
