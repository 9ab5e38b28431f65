"""The profile of a cluster of ``pyrklog dev``.

``dev start`` writes and uses it, ``dev purge`` removes it. A profile of the same name that the user
has written stays as it is.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pyrklog.cli.failures import CliError
from pyrklog.cli.profiles import Profile, Profiles, load

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_DEFAULT_CLUSTER = "default"


def profile_name(cluster: str) -> str:
    return "dev" if cluster == _DEFAULT_CLUSTER else f"dev-{cluster}"


def write(cluster: str, bootstrap: str, *, select: bool) -> list[str]:
    """Sentences about what was done; none if nothing had to be. The cluster runs in any case."""
    from pyrklog.cli import profile_file

    name = profile_name(cluster)
    try:
        found = load(os.environ)
        if not _is_ours(found, name, cluster):
            return [f"profile {name} is yours and stays as it is: pyrklog -b {bootstrap}"]
        before = found.get(name) if name in found.tables else Profile(name, dev=cluster)
        after = replace(before, brokers=tuple(bootstrap.split(",")))
        selects = select and found.chosen != name
        if after == before and not selects:
            return []

        def act(document: "TOMLDocument") -> None:
            profile_file.put(document, after)
            if selects:
                profile_file.select(document, name)

        profile_file.change(found.path, act)
    except CliError as error:
        return [f"no profile was written: {error.what}"]
    if not selects:
        return []
    instead = f" instead of {found.chosen}" if found.chosen else ""
    return [f"profile {name} is in use{instead}; `pyrklog profile use` chooses another"]


def start_command(cluster: str, address: str | None = None) -> str:
    """What brings the broker at this address back, or any of the cluster."""
    from pyrklog.dev.errors import DevError
    from pyrklog.dev.state import Place, dev_command, dev_root

    try:
        found = Place(dev_root(os.environ), cluster).load()
    except DevError:
        return dev_command(cluster, "start")
    if not found.running():
        return dev_command(cluster, "start")
    away = [one for one in found.brokers if found.state_of(one) in ("dead", "stopped")]
    wanted = [one for one in away if address in (None, found.address_of(one))]
    if not wanted:
        return dev_command(cluster, "status")
    return dev_command(cluster, "restart", wanted[0].name)


def remove(cluster: str) -> list[str]:
    """Sentences about what was done."""
    from pyrklog.cli import profile_file

    name = profile_name(cluster)
    try:
        found = load(os.environ)
        if name not in found.tables or not _is_ours(found, name, cluster):
            return []
        profile_file.change(found.path, lambda document: profile_file.remove(document, name))
    except CliError as error:
        return [f"profile {name} was not removed: {error.what}"]
    used = "; no profile is in use" if found.chosen == name else ""
    return [f"profile {name} removed{used}"]


def _is_ours(found: Profiles, name: str, cluster: str) -> bool:
    return name not in found.tables or found.get(name).dev == cluster
