"""What the problems of topics, groups, transactions, clusters and data on disk mean."""

from collections.abc import Mapping

from pyrklog.base.explained_start import Explanation
from pyrklog.base.problems import Problem

TOPICS: Mapping[Problem, Explanation] = {
    Problem.TOPIC_NOT_FOUND: Explanation(
        "The cluster has no topic of this name, or it was deleted while it was read.",
        (
            "a mistyped name; names distinguish capitals",
            "another cluster: see -b and the profile",
            "the broker creates no topics by itself (auto.create.topics.enable)",
        ),
        ("`pyrklog topic list` shows the names, `pyrklog topic create NAME` makes one",),
    ),
    Problem.PARTITION_NOT_FOUND: Explanation(
        "The topic exists, and has fewer partitions: they count from 0.",
        ("a number that is one too high", "a file that was made for another topic"),
        ("`pyrklog topic describe TOPIC` lists its partitions",),
    ),
    Problem.TOPIC_EXISTS: Explanation(
        "A topic of this name exists, and the command would make it or set its options.",
        ("it was made before, perhaps by a client (auto.create.topics.enable)",),
        ("choose another name, use --if-not-exists, or `pyrklog topic alter`",),
    ),
    Problem.INTERNAL_TOPIC: Explanation(
        "The topic holds state of the brokers (__consumer_offsets, __transaction_state): "
        "deleting or changing it like this loses the offsets of groups or transactions.",
        ("a pattern or a list of names that matches it",),
        ("leave it out; the option that the message names is for those who are sure",),
    ),
    Problem.TOPIC_REPLACED: Explanation(
        "The topic was deleted and created anew while it was read: the same name, other records.",
        ("a deployment or a test that makes its topics anew",),
        ("start again to read the new topic; its offsets begin at 0",),
    ),
    Problem.OUTSIDE_THE_LOG: Explanation(
        "The offset is before the first record that is left, or past the end of the log.",
        (
            "retention has deleted the records",
            "the topic was made anew, and offsets begin at 0",
        ),
        (
            "`pyrklog topic describe TOPIC` shows where each partition begins and ends",
            "give start, end, an offset in between, or @TIME",
        ),
    ),
    Problem.PARTITION_COUNT: Explanation(
        "Partitions can be added, never removed, and a copy keeps each record's partition.",
        (
            "the topic has as many partitions as asked for, or more",
            "the target of a copy has fewer partitions than the source",
        ),
        ("ask for more, or copy with --repartition",),
    ),
    Problem.OPTION_NOT_FOUND: Explanation(
        "There is no option or subscription to client metrics of this name.",
        ("a mistyped name", "an option of the broker asked of a topic, or the other way round"),
        (
            "`pyrklog config explain NAME` knows all options, and proposes similar ones",
            "`pyrklog config describe client-metrics` lists the subscriptions",
        ),
    ),
    Problem.OPTION_NOT_CHANGED: Explanation(
        "The option does not exist here, does not take the value, or cannot be changed while the "
        "broker runs.",
        ("a mistyped name or value", "an option that a broker reads only at its start"),
        (
            "`pyrklog config explain NAME` tells what it takes and when it takes effect",
            "set it in the broker's file (pyrklog serve --config, or --set), and restart it",
        ),
    ),
    Problem.RECORD_REFUSED: Explanation(
        "The broker does not take the record: it is too large, or has no key where the topic is "
        "compacted.",
        (
            "a record above max.message.bytes of the topic, or message.max.bytes of the client",
            "cleanup.policy=compact needs a key to tell records apart",
        ),
        (
            "raise the topic's max.message.bytes and -X message.max.bytes=N here",
            "give keys: `produce -k KEY`, or -K TEXT for lines",
        ),
    ),
}
GROUPS: Mapping[Problem, Explanation] = {
    Problem.GROUP_NOT_FOUND: Explanation(
        "No coordinator knows a group of this name.",
        (
            "a mistyped name, or another cluster",
            "the group had no member for offsets.retention.minutes, and was forgotten",
        ),
        ("`pyrklog group list` shows the names",),
    ),
    Problem.GROUP_ACTIVE: Explanation(
        "Consumers are in the group. Changing its offsets would be undone by their next commit.",
        ("an application runs", "a member that was killed, until its session ends"),
        (
            "stop its consumers, and wait for session.timeout.ms",
            "`pyrklog group describe GROUP` shows the members",
        ),
    ),
    Problem.NO_OFFSETS: Explanation(
        "The group has committed nothing for these topics.",
        ("it has not read them, or its offsets have expired", "a mistyped topic"),
        ("`pyrklog group describe GROUP` shows what it has; name topics with --topic",),
    ),
    Problem.NO_HISTORY: Explanation(
        "The log of groups has nothing about rebalances of this group, or no broker has kept how "
        "far it was behind.",
        (
            "it has had no member since the log was compacted",
            "its past lag: it is new, or the brokers are not pyrklog's, or connected to by TLS or "
            "SASL",
            "a mistyped name",
        ),
        (
            "`pyrklog group list` shows the groups",
            "`pyrklog group lag GROUP --since 14d` goes back as far as lag is kept",
        ),
    ),
}
TRANSACTIONS: Mapping[Problem, Explanation] = {
    Problem.TRANSACTION_NOT_FOUND: Explanation(
        "There is no such transactional id, or no open transaction of it or at this place.",
        ("it has ended meanwhile", "another partition, or another cluster"),
        (
            "`pyrklog cluster txns list --state Ongoing` shows open ones",
            "`pyrklog cluster txns list --hanging` shows those without a coordinator",
        ),
    ),
    Problem.TRANSACTION_IN_HAND: Explanation(
        "The coordinator knows the transaction and is ending it, or still has it open. A marker "
        "written past it could abort what it commits.",
        ("a producer that still runs", "a coordinator that waits for a partition's leader"),
        (
            "wait; `pyrklog cluster txns describe ID` shows the state",
            "`pyrklog cluster txns abort ID` has the coordinator abort it",
        ),
    ),
}
CLUSTER: Mapping[Problem, Explanation] = {
    Problem.NOT_AS_PLANNED: Explanation(
        "Nothing moves any more, and a partition's replicas are others than those of the plan.",
        (
            "the reassignment was cancelled, or replaced by another plan",
            "the topic was deleted",
        ),
        ("apply the plan again, or make one anew: `pyrklog cluster reassign plan`",),
    ),
    Problem.BROKER_NOT_FOUND: Explanation(
        "No live broker has this number.",
        ("the broker is down", "a mistyped number, or another cluster"),
        ("`pyrklog cluster brokers` lists those that are alive",),
    ),
    Problem.REASSIGNMENT_REFUSED: Explanation(
        "The reassignment of a partition is not begun, or not cancelled: by the controller, or by "
        "the command because somebody else has changed the partition.",
        (
            "a broker of the plan is down",
            "another plan moves the partition, or has moved it since this one began",
            "a plan that is undone would leave fewer replicas than min.insync.replicas",
            "nothing is being moved that could be cancelled",
            "the topic is being deleted",
        ),
        (
            "`pyrklog cluster reassign status` shows what is moving; make the plan anew",
            "`apply --additional` gives new targets to what another plan moves",
        ),
    ),
    Problem.REPLICAS_DO_NOT_FIT: Explanation(
        "Each replica of a partition is on another broker, and there are fewer brokers than "
        "replicas.",
        ("--rf is too high, or --brokers names too few",),
        ("name more brokers, or fewer replicas",),
    ),
    Problem.NO_LEADER: Explanation(
        "Partitions have no leader, so that nothing can be written to them or read from them.",
        ("brokers are down", "the topic was just made, and the controller is behind"),
        ("`pyrklog cluster health` names the partitions and why",),
    ),
    Problem.PROMOTION_REFUSED: Explanation(
        "`pyrklog cluster expand --promote` deletes what new replicas lack, and somebody may still "
        "read that, or it is not known that nobody does. Nothing was deleted of this partition.",
        (
            "a group has committed an offset that would be deleted",
            "a consumer has fetched such a record within `pyrklog.expansion.window.ms`",
            "a broker has started, or a leader was elected, within that time",
            "the topic is compacted",
        ),
        (
            "wait: back-fill or retention make the replicas whole, too",
            "`--without-group G` passes over a group that nobody is in",
            "`pyrklog group seek` moves a group that needs no old records",
        ),
    ),
    Problem.WOULD_BREAK_A_MINIMUM: Explanation(
        "A broker is to be emptied or replaced, and a partition would have fewer replicas, fewer "
        "racks or less room than it needs. Nothing was changed.",
        (
            "too few other brokers: each replica of a partition is on another one",
            "the other brokers' disks would be fuller than `--max-fill`, 90 % without it",
            "the broker is the last one of its rack",
            "the partition has no leader, so nothing can be copied",
            "another replica of the partition is on a broker that is down",
        ),
        (
            "add a broker, or space, or fill disks further with `--max-fill`",
            "`pyrklog cluster reassign plan --rf N` lowers the number of replicas",
            "--no-rack-aware accepts fewer racks",
            "`pyrklog cluster health` tells why a partition has no leader",
        ),
    ),
    Problem.NO_ROOM: Explanation(
        "Brokers are uneven, or one is to have nothing, and no replica fits where it would go. "
        "Nothing is moved.",
        (
            "the disks of the brokers that have least would be fuller than `--max-fill`, 90 % "
            "without it",
            "running moves bring what fills them",
            "Apache Kafka's brokers count what the file system keeps for root as taken",
        ),
        (
            "make space, or add a disk or a broker",
            "fill disks further: `--max-fill 95%`",
        ),
    ),
}
MIRROR: Mapping[Problem, Explanation] = {
    Problem.MIRROR_STOPPED: Explanation(
        "The mirror cannot go on without losing or repeating records, so it stops. What was "
        "copied stays, and its progress is kept.",
        (
            "a topic was deleted and created anew, at the source or at the target",
            "retention has deleted records before they were copied",
            "the target does not take a record: max.message.bytes, timestamps",
            "another process runs the same mirror",
        ),
        (
            "do what the message says, and start it again: it goes on where it was",
            "mirror.md has each case",
        ),
    ),
    Problem.MIRROR_ARGUMENTS: Explanation(
        "An option of the mirror is wrong: an alias, a pattern, a property of a cluster.",
        (
            "source and target with the same alias, or with brokers of one cluster",
            "a list with commas where the option is to be repeated",
            "a certificate or a key that cannot be read",
        ),
        ("`pyrklog mirror run --help` has the forms",),
    ),
    Problem.MIRROR_NOT_FOUND: Explanation(
        "The target cluster knows no mirror of this name, or no topic matches --topics.",
        (
            "another alias or --name than that of `mirror run`",
            "it has never run",
            "a pattern that is misspelt, with `mirror verify` or `mirror run --once`",
        ),
        (
            "give the alias and --name that `pyrklog mirror run` had",
            "give --topics regular expressions that match whole names",
        ),
    ),
    Problem.NOT_REDRIVEN: Explanation(
        "No record of the dead-letter topic could be moved.",
        (
            "no header says where they came from",
            "the topic that a header names does not exist",
            "they were redriven too often (--max-redrives)",
        ),
        ("the column WHY tells; `--to TOPIC` or `--to header:NAME` gives a target",),
    ),
    Problem.PROGRESS_EXPIRED: Explanation(
        "The group has no progress, and records are so old that brokers may have forgotten what "
        "it had; or its progress lies behind the end of the topic. Moving all of them could move "
        "some twice.",
        (
            "the first run on a topic with old records",
            "no run within offsets.retention.minutes",
            "the topic's last records were lost, or it was created anew",
        ),
        (
            "--again redrives all of them",
            "`pyrklog group seek redrive.DLQ --topic DLQ --to @-7d` leaves older ones out",
        ),
    ),
}
DATA: Mapping[Problem, Explanation] = {
    Problem.NO_DATA: Explanation(
        "The directory is there or not, but it holds no logs, no block cache or no state-change "
        "log of a broker.",
        ("--data in the place of its logs/, or the other way round", "a mistyped path"),
        (
            "name the folder that has meta.properties, or a partition's own",
            "`pyrklog arena list` shows the block caches",
        ),
    ),
    Problem.DATA_IN_USE: Explanation(
        "A running broker uses the directory or its block cache; changing it would destroy logs.",
        ("the broker has not been stopped, or is still stopping",),
        ("stop its broker first",),
    ),
    Problem.LOG_DAMAGED: Explanation(
        "A log file has batches whose checksum or length is wrong.",
        (
            "a failing disk",
            "the end of a file that was being written when the machine lost power: the broker "
            "cuts it off at its start",
        ),
        (
            "`pyrklog log verify TOPIC` compares the replicas",
            "with another replica in sync, stop the broker, remove the partition's folder, and "
            "start it: it copies the partition anew",
        ),
    ),
    Problem.CACHE_KEPT: Explanation(
        "A block cache in shared memory was not drained or removed: it may hold the newest "
        "records of a broker that was killed.",
        ("its log directory is gone, or cannot be written", "it belongs to another version"),
        (
            "start the broker on its directory: it takes the cache up",
            "`pyrklog arena remove PATH` gives up what only the cache has",
        ),
    ),
    Problem.NOT_EXPORTED: Explanation(
        "The directory was not handed to Kafka. It is as it was.",
        ("it is not a broker's directory", "the block cache was not drained, after a kill"),
        ("start the broker and stop it in order, then export again",),
    ),
}
DEV: Mapping[Problem, Explanation] = {
    Problem.DEV_NOT_FOUND: Explanation(
        "There is no dev cluster or node of this name, or it has no log yet.",
        ("it was purged, or was never started", "another --name"),
        ("`pyrklog dev start` makes one; `pyrklog dev status` lists its nodes",),
    ),
    Problem.DEV_NOT_RUNNING: Explanation(
        "The node is stopped or was killed.",
        ("`pyrklog dev kill` or `dev stop` before", "a restart of the machine"),
        ("`pyrklog dev restart NODE`",),
    ),
    Problem.DEV_EXISTS: Explanation(
        "The cluster runs already, or was made with other options, which it keeps.",
        ("`pyrklog dev start` twice",),
        (
            "`pyrklog dev add` makes it larger",
            "`pyrklog dev purge` deletes it with its data, for a start with other options",
        ),
    ),
    Problem.DEV_NOT_STARTED: Explanation(
        "A broker or ZooKeeper ended while it started, or could not join the others.",
        ("a wrong option of --set", "a port that was taken meanwhile"),
        ("see the log that the message names, or `pyrklog dev logs NODE`",),
    ),
    Problem.DEV_PORTS: Explanation(
        "Ports of the cluster are held by other programs, or all ranges are used.",
        ("another cluster or broker on this machine",),
        ("stop it, or choose others with --base-port N", "`pyrklog dev purge` frees a range"),
    ),
    Problem.DEV_STATE: Explanation(
        "The folder of dev clusters cannot be used, or the state of this one cannot be read.",
        ("a folder of another user", "a file that was edited or cut off"),
        ("name a folder of your own in XDG_DATA_HOME", "do what the message says"),
    ),
    Problem.BENCH_FAILED: Explanation(
        "A load generator ended with errors, so that its figures would be wrong.",
        (
            "brokers that went away or refused records while it ran",
            "--rate above what this machine can send",
        ),
        ("see the message; lower --rate; `pyrklog cluster health` tells about the brokers",),
    ),
}
