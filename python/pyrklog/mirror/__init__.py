"""Copies topics of one cluster to another; see ``docs/understanding/mirroring.md``."""

from pyrklog.mirror.copy import Pace
from pyrklog.mirror.errors import Kind, MirrorError
from pyrklog.mirror.names import Cluster, Names, Offsets, Patterns, Policy
from pyrklog.mirror.options import Options, Told
from pyrklog.mirror.run import Mirror

__all__ = [
    "Cluster",
    "Kind",
    "Mirror",
    "MirrorError",
    "Names",
    "Offsets",
    "Options",
    "Pace",
    "Patterns",
    "Policy",
    "Told",
]
