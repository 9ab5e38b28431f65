"""Bytes of replicas on their brokers, as DescribeLogDirs tells (plain-text connections only)."""

from collections.abc import Mapping, Sequence

from pyrklog.cli.cluster_requests import Address, ClusterRequests
from pyrklog.cli.failures import CliError, Exit
from pyrklog.protocol.log_dirs import (
    DESCRIBE_LOG_DIRS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

ReplicaBytes = Mapping[tuple[str, int, int], int]
"""By topic, partition and broker."""


def replica_bytes(
    requests: ClusterRequests,
    brokers: Mapping[int, Address],
    wanted: Mapping[str, Sequence[int]] | None,
) -> tuple[ReplicaBytes, list[int]]:
    """Bytes of these partitions' replicas (None: of all), and the brokers that do not tell."""
    topics = None
    if wanted is not None:
        topics = [DescribableLogDirTopic(name, list(indices)) for name, indices in wanted.items()]
    found: dict[tuple[str, int, int], int] = {}
    silent: list[int] = []
    for number, address in sorted(brokers.items()):
        try:
            told = requests.ask(address, DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics))
        except CliError as error:
            if error.code is Exit.USAGE:
                raise
            silent.append(number)
            continue
        # A broker that refuses the request answers without directories.
        if not told.results:
            silent.append(number)
        for directory in told.results:
            for topic in directory.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        found[topic.name, one.partition_index, number] = one.partition_size
    return found, silent
