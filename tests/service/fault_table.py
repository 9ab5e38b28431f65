"""Every fault, with the alerts that it must raise and those that it may."""

from __future__ import annotations

from tests.service import broker_faults, client_faults, disk_faults
from tests.service.faults import LEFT, RESTARTED, Fault, alerts

FAULTS = (
    Fault(
        "broker-killed",
        "kill -9 of a broker with the only replica of a topic",
        broker_faults.broker_killed,
        alerts("BrokerDown", "PartitionsOffline", "PartitionsUnderReplicated"),
        alerts("LeadersUneven"),
    ),
    Fault(
        "broker-hangs",
        "SIGSTOP of a broker until its session ends; a topic needs all replicas",
        broker_faults.broker_hangs,
        alerts("BrokerDown", "PartitionsUnderMinIsr", "PartitionsUnderReplicated"),
        alerts("LeadersUneven"),
    ),
    Fault(
        "broker-restarts-again",
        "three kills and starts within the window",
        broker_faults.broker_restarts_again,
        alerts("BrokerRestarts"),
        RESTARTED,
    ),
    Fault(
        "start-unheard",
        "a broker starts whom the others do not reach",
        broker_faults.start_unheard,
        alerts("BrokerNotReady"),
        RESTARTED,
    ),
    Fault(
        "zookeeper-away",
        "ZooKeeper is killed",
        broker_faults.zookeeper_away,
        alerts("ZooKeeperLost", "ZooKeeperUnreached"),
    ),
    Fault(
        "broker-without-zookeeper",
        "a broker's connections to ZooKeeper are cut",
        broker_faults.broker_without_zookeeper,
        alerts("ZooKeeperUnreached"),
        LEFT,
    ),
    Fault(
        "controller-without-zookeeper",
        "the controller's connections to ZooKeeper are cut",
        broker_faults.controller_without_zookeeper,
        alerts("ZooKeeperUnreached", "SeveralControllers"),
        LEFT,
    ),
    Fault(
        "controller-dies-without-zookeeper",
        "ZooKeeper is killed, then the controller",
        broker_faults.controller_dies_without_zookeeper,
        alerts("NoController", "BrokerDown", "ZooKeeperLost", "ZooKeeperUnreached"),
        LEFT,
    ),
    Fault(
        "two-clusters-in-a-job",
        "a scrape job reads a broker of another cluster, too",
        broker_faults.two_clusters_in_a_job,
        alerts("SeveralControllers"),
    ),
    Fault(
        "leaders-stay-moved",
        "a broker is restarted, and preferred leaders are not elected",
        broker_faults.leaders_stay_moved,
        alerts("LeadersUneven"),
        alerts("BrokerDown", "PartitionsUnderReplicated"),
    ),
    Fault(
        "unclean-election",
        "a follower is cut off until it is out of sync, then its leader is killed",
        broker_faults.unclean_election,
        alerts("UncleanElection"),
        RESTARTED | alerts("PartitionsUnderMinIsr"),
    ),
    Fault(
        "clock-ahead",
        "a broker's clock is three seconds ahead when it registers",
        broker_faults.clock_ahead,
        alerts("ClockSkew"),
        RESTARTED,
    ),
    Fault(
        "little-shared-memory",
        "a broker's block cache lies in 32 MiB of memory",
        broker_faults.little_shared_memory,
        alerts("CacheSmall"),
        RESTARTED,
    ),
    Fault(
        "disk-fills-up",
        "a file of somebody else fills a disk up to 93 %",
        disk_faults.disk_fills_up,
        alerts("DiskFilling"),
    ),
    Fault(
        "disk-full",
        "a disk has no space left",
        disk_faults.disk_is_full,
        alerts("LogDirFull"),
        alerts("DiskFilling", "PartitionsUnderReplicated"),
    ),
    Fault(
        "disk-hangs",
        "a disk answers nothing, while producers and readers of old records need it",
        disk_faults.disk_hangs,
        alerts("DiskHangs", "ReadsStuck", "WritesStuck", "ProduceRefused"),
        # Offsets may lie on it, too.
        alerts("PartitionsUnderReplicated", "GroupBehind"),
    ),
    Fault(
        "disk-fails",
        "a disk's file system is gone; it has the only replicas of some partitions",
        disk_faults.disk_fails,
        alerts("LogDirFailed", "PartitionsOffline"),
        RESTARTED,
    ),
    Fault(
        "offsets-damaged",
        "a byte of a coordinator's replica of the offsets has changed",
        disk_faults.offsets_are_damaged,
        alerts("InternalTopicDamaged"),
        RESTARTED,
    ),
    Fault(
        "descriptors-scarce",
        "a broker has 87 % of the descriptors that it may have",
        client_faults.descriptors_scarce,
        alerts("FileHandlesScarce"),
    ),
    Fault(
        "descriptors-gone",
        "a broker may have no more descriptors, and clients connect",
        client_faults.descriptors_gone,
        alerts("ConnectionsNotAccepted"),
        alerts("FileHandlesScarce"),
    ),
    Fault(
        "connections-at-limit",
        "more clients connect than max.connections allows",
        client_faults.connections_at_limit,
        alerts("ConnectionsAtLimit"),
    ),
    Fault(
        "not-kafka",
        "a web browser connects again and again",
        client_faults.not_kafka,
        alerts("ProtocolErrors"),
    ),
    Fault(
        "cache-too-small",
        "readers of old records beside a fast producer",
        client_faults.cache_too_small,
        alerts("CacheThrashing"),
        RESTARTED,
    ),
    Fault(
        "consumers-stop",
        "a group has no members any more",
        client_faults.consumers_stop,
        alerts("GroupBehind"),
    ),
    Fault(
        "transaction-hangs",
        "a transaction stays open before a group that reads committed records",
        client_faults.transaction_hangs,
        alerts("GroupBehind"),
    ),
    Fault(
        "topic-too-wide",
        "a topic in detail has more than 5,000 series",
        client_faults.topic_too_wide,
        alerts("SeriesLeftOut"),
    ),
)
