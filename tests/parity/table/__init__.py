"""The requests, a module a family of APIs or a kind of sequence: there an answer depends on time
and on what was before."""

from importlib import import_module

from tests.parity.rows import Scenario

MODULES = (
    "produce",
    "fetch",
    "metadata",
    "groups",
    "offsets",
    "group_admin",
    "topics",
    "configs",
    "broker_options",
    "acls",
    "sasl",
    "replicas",
    "frames",
    "transactions",
    "old_versions",
    "compaction",
    "fetch_sessions",
    "option_levels",
)
AWAITED = ("awaited_admin",)
"""Modules of APIs that pyrklog does not serve yet: Kafka's answers are kept, and no test of ours
asks."""


def scenarios(module: str) -> tuple[Scenario, ...]:
    """KeyError if two rows of a scenario, or two scenarios, have one name."""
    found: tuple[Scenario, ...] = import_module(f"tests.parity.table.{module}").SCENARIOS
    names = [scenario.name for scenario in found]
    for scenario in found:
        names += [f"{scenario.name} / {row.title}" for row in scenario.rows]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise KeyError(f"{module} has two rows of one name: {sorted(twice)}")
    return found
