from __future__ import annotations

from pyrklog.config.option import CLUSTER_WIDE, boolean, integer, short

TRANSACTIONS = (
    integer("transaction.max.timeout.ms", 900000, importance="high", minimum=1).described(
        "Longest transaction timeout that a producer may ask for."
    ),
    integer("transactional.id.expiration.ms", 604800000, importance="high", minimum=1).described(
        "A transactional id without a transaction for this long is forgotten."
    ),
    integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10000, minimum=1
    ).described("How often transactions are checked for their timeout."),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3600000, minimum=1
    ).described("How often transactional ids are checked for expiration."),
    boolean("transaction.partition.verification.enable", True, update_mode=CLUSTER_WIDE).described(
        "Whether a transaction's coordinator is asked before its first batch in a partition "
        "(KIP-890). Transactions of version 2 ask in any case."
    ),
)

TRANSACTION_TOPIC = (
    integer("transaction.state.log.num.partitions", 50, importance="high", minimum=1).described(
        "Partitions of __transaction_state; do not change it once the topic exists."
    ),
    short("transaction.state.log.replication.factor", 3, importance="high", minimum=1).described(
        "Replicas of __transaction_state. With fewer brokers transactions have no coordinator. A "
        "broker without ZooKeeper makes one replica if the option is not given."
    ),
    integer("transaction.state.log.min.isr", 2, importance="high", minimum=1).described(
        "Replicas of __transaction_state that must be in sync for a write; at most all of them.",
        in_kafka="May exceed the number of replicas; then no transaction begins.",
    ),
    integer(
        "transaction.state.log.segment.bytes", 104857600, importance="high", minimum=1
    ).described("Segment size of __transaction_state."),
    integer(
        "transaction.state.log.load.buffer.size", 5242880, importance="high", minimum=1
    ).described("Bytes read at once when a partition's transactional ids are loaded."),
)

TRANSACTION_OPTIONS = (*TRANSACTIONS, *TRANSACTION_TOPIC)
