"""What the problems of a broker's start mean, what usually causes them, and what to do."""

from collections.abc import Mapping
from typing import NamedTuple

from pyrklog.base.problems import Problem


class Explanation(NamedTuple):
    meaning: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]


START: Mapping[Problem, Explanation] = {
    Problem.OPTION_VALUE: Explanation(
        "An option of the broker has a value that it cannot have. The message names the option, "
        "where it was given (file and line, environment, --set or a flag), and what it takes.",
        (
            "a number out of range, or a unit such as 7d where Kafka takes milliseconds",
            "an empty value, as from a shell variable that is not set",
            "a variable ${provider:path:key} that cannot be resolved",
        ),
        (
            "`pyrklog config explain OPTION` tells what it takes, and its default",
            "`pyrklog serve --check`, with the same arguments, tries the configuration only",
        ),
    ),
    Problem.OPTION_UNKNOWN: Explanation(
        "Neither Kafka 3.9 nor pyrklog has the option. An option that nobody reads would be a "
        "setting that is missing without a word.",
        (
            "a mistyped name",
            "an option of a newer Kafka, or of a plug-in that runs in Kafka's JVM only",
        ),
        (
            "take the name that the message proposes, or leave the option out",
            "`pyrklog config explain OPTION` lists similar names",
        ),
    ),
    Problem.OPTION_NOT_SERVED: Explanation(
        "The option is Kafka's, and it would be dangerous to start without what it asks for: "
        "access control, encryption, or a class that runs in a JVM.",
        (
            "a server.properties of a Kafka with an authorizer, with TLS or with SASL",
            "a config provider other than Kafka's own three",
        ),
        (
            "where everyone who can connect may do everything, remove the option, or set it to "
            "nothing: --set OPTION=",
            "otherwise wait: skipped.md lists what is not served yet",
        ),
    ),
    Problem.OPTIONS_DISAGREE: Explanation(
        "Each option is good by itself, but not with another one.",
        (
            "a flag and an option that exclude each other, such as --tmp and --data",
            "two options that must be equal (broker.id and node.id) or ordered",
        ),
        (
            "leave one of the two out",
            "`pyrklog serve --print-config` shows every option, its value and its source",
        ),
    ),
    Problem.OPTIONS_FILE: Explanation(
        "The file of --config cannot be read, or a line of it is no NAME=VALUE; or its name ends "
        "in .toml, and it is no TOML.",
        (
            "a wrong path, or a path below the folder of another process",
            "missing permission for the user of the broker",
            r"a bad escape such as \u12",
        ),
        ("correct the path, the permission or the line that the message names",),
    ),
    Problem.LISTENERS: Explanation(
        "listeners, advertised.listeners or the listener between brokers do not fit together, or "
        "clients could not use them.",
        (
            "a listener without NAME://, HOST or port",
            "the same name or port twice",
            "0.0.0.0 as the advertised address, which leads clients to themselves",
            "a listener name without a protocol in listener.security.protocol.map",
        ),
        (
            "for one listener `--listen HOST:PORT` is enough",
            "advertise the name or address by which clients reach this machine",
        ),
    ),
    Problem.PORT_TAKEN: Explanation(
        "Another program listens on the port. The message names the process where this user may "
        "see it.",
        (
            "another broker, of pyrklog or Kafka, on this machine",
            "the HTTP port of another broker, which is its Kafka port + 100",
        ),
        (
            "stop the other program, or choose another port: --listen :9095",
            "--http HOST:PORT moves the HTTP port, --http none does without",
        ),
    ),
    Problem.ADDRESS_UNUSABLE: Explanation(
        "The host of a listener is no name that resolves, no address of this machine, or a port "
        "that this user may not use.",
        (
            "the address by which clients reach a router or a container, given as the listener",
            "a mistyped host name, or a name service that is away",
            "a port below 1024",
        ),
        (
            "listen on 0.0.0.0 or an address of this machine, and put the other one into "
            "advertised.listeners",
            "`getent hosts NAME` tells whether the name resolves",
        ),
    ),
    Problem.LISTEN_FAILED: Explanation(
        "The operating system refuses to listen, for a reason other than the address or the port.",
        ("no file handles or no memory for sockets are left", "a sandbox forbids it"),
        ("see the system's reason in the message, and its log (dmesg, journalctl)",),
    ),
    Problem.DIRECTORY_IN_USE: Explanation(
        "A running broker has locked the directory. Two brokers on one directory would destroy "
        "its logs. A lock ends with its process: there is no lock file to delete.",
        ("the broker runs already", "another broker was given the same --data or log.dirs"),
        (
            "stop the broker that the message names, or choose another directory with --data",
            "`pyrklog serve` without --data uses one default directory for each user",
        ),
    ),
    Problem.DIRECTORY_UNUSABLE: Explanation(
        "A directory that the broker needs cannot be made, entered or written.",
        (
            "it belongs to another user, as after a start as root",
            "a parent is missing or is a file",
            "the file system is mounted read-only",
        ),
        (
            "give it to the broker's user: chown -R USER DIR",
            "choose another place with --data, log.dirs or pyrklog.meta.dir",
        ),
    ),
    Problem.DIRECTORIES_MISPLACED: Explanation(
        "The directories that the broker was given would hide data or mix it up: nested in one "
        "another, one level off, or without those that its metadata knows.",
        (
            "--data names the parent or a child of the directory that has the records",
            "log.dirs changed, and the directory with the records is no longer in it",
            "pyrklog.meta.dir or a file of reports lies in a log directory",
        ),
        ("give the directories as the message proposes: nothing was touched",),
    ),
    Problem.OTHER_BROKERS_DATA: Explanation(
        "The directory's meta.properties or metadata names another broker than this one.",
        (
            "broker.id was changed after the first start",
            "directories of two brokers are in one log.dirs",
            "a directory was copied to make a second broker",
        ),
        (
            "set broker.id to the number that the message names, or leave it out",
            "give a new broker an empty directory",
        ),
    ),
    Problem.OTHER_CLUSTERS_DATA: Explanation(
        "The data carries the id of one cluster, and ZooKeeper or another directory that of "
        "another. Serving it would show records of one cluster in the other.",
        (
            "a wrong address or chroot in zookeeper.connect",
            "ZooKeeper was set up anew, and lost the cluster",
        ),
        (
            "correct zookeeper.connect; never delete meta.properties: it says whose records "
            "these are",
            "restore ZooKeeper's data from its copy",
        ),
    ),
    Problem.FOREIGN_DATA: Explanation(
        "Another program wrote the file or the directory, or a newer pyrklog whose format this "
        "one cannot read.",
        ("a downgrade", "--data names the directory of another program"),
        ("start the version that wrote it, or choose another directory with --data",),
    ),
    Problem.ZOOKEEPER_AWAY: Explanation(
        "The broker is to be part of a cluster, and its ZooKeeper does not answer, does not speak "
        "TLS with it, or ended the session while the broker started. Trying again may help: a "
        "service manager restarts the broker.",
        (
            "ZooKeeper does not run, or has lost its majority",
            "a wrong address or port in zookeeper.connect; TLS has a port of its own "
            "(secureClientPort)",
            "a certificate that the other side does not trust",
        ),
        (
            "`echo srvr | nc HOST PORT` tells whether ZooKeeper serves",
            "`pyrklog doctor` looks at addresses, clocks and ZooKeeper",
        ),
    ),
    Problem.ALONE_OR_IN_A_CLUSTER: Explanation(
        "A broker is alone, with its own metadata, or in a cluster, with ZooKeeper's. Its data "
        "cannot change from one to the other by starting it differently, and pyrklog and Apache "
        "Kafka do not share a cluster.",
        (
            "zookeeper.connect was added to, or removed from, the options of a broker with data",
            "the chroot in zookeeper.connect is that of an Apache Kafka cluster",
        ),
        (
            "start it as before; choose an empty directory for the other one",
            "copy topics between the two with `pyrklog topic copy` or `pyrklog mirror run`",
        ),
    ),
    Problem.BROKER_NUMBER_MISSING: Explanation(
        "A broker in a cluster has a number, and nothing gives this one any.",
        ("broker.id is missing and broker.id.generation.enable is false",),
        ("set broker.id, or broker.id.generation.enable=true",),
    ),
    Problem.BROKER_NUMBER_TAKEN: Explanation(
        "A broker with this number is registered in ZooKeeper. The registration of a broker that "
        "was killed stays until its session ends (zookeeper.session.timeout.ms).",
        (
            "two brokers have the same broker.id",
            "the broker was killed and started again within its session",
        ),
        (
            "wait for the session to end, and start again",
            "give each broker its own broker.id",
        ),
    ),
    Problem.METADATA_DAMAGED: Explanation(
        "The metadata store has an entry that is missing or whose checksum is wrong. The broker "
        "does not guess: topics and options would be lost without a word. The records in the log "
        "directories were not touched.",
        ("a disk that returns wrong data", "a file that was edited, or copied while in use"),
        (
            "look at the disk (smartctl, dmesg)",
            "restore the metadata directory from a copy that was made while the broker was stopped",
        ),
    ),
    Problem.METADATA_DISK_FULL: Explanation(
        "The volume of the metadata store has no space left, so that the broker cannot note what "
        "it is about to do.",
        ("log directories on the same volume have filled it",),
        ("free some space there, and start again; nothing has to be repaired",),
    ),
    Problem.DISK_FAILED: Explanation(
        "A file or a disk of the broker cannot be read or written. The broker ends rather than go "
        "on past an unknown state of its disk.",
        ("a failing disk", "a file system that the kernel has made read-only", "a full disk"),
        (
            "look at the system's log (dmesg, journalctl -k)",
            "start again once the disk works: logs recover by themselves",
        ),
    ),
    Problem.HANDOVER: Explanation(
        "Data of an Apache Kafka cannot be taken over, or handed back, as it is. Nothing was "
        "changed.",
        (
            "the directory holds no data of Kafka, or of a broker of ours",
            "Kafka's metadata beside the logs is cut off or damaged",
            "the newest records lie in the block cache only, after a kill",
        ),
        (
            "name the directories as that broker had them (--data, --config)",
            "`pyrklog arena drain DIR` writes the cache to the logs",
            "adoption.md has the steps",
        ),
    ),
    Problem.REPORTER_MISSING: Explanation(
        "Metrics are to be reported by a package that is not installed.",
        ("pyrklog was installed without the extra",),
        ('pip install "pyrklog[otlp]", or leave the option out',),
    ),
    Problem.METADATA_LOST: Explanation(
        "The metadata store that the broker comes back to is not the one that it left: another "
        "cluster's, or one that has lost its data. Going on would delete what that store does not "
        "know.",
        ("ZooKeeper was set up anew, or restored from an old copy", "a wrong chroot"),
        ("restore ZooKeeper's data; the broker's own data is untouched",),
    ),
}
