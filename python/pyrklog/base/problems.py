"""What can go wrong, by number: ``error[PK07]`` is the same problem in every version.

A number that was given stays with its problem for ever, and so does its exit code. A problem that
no longer occurs leaves its number unused. :mod:`.problem_texts` explains each; ``ci/errors.py``
writes ``docs/using/errors.md`` from both.
"""

from __future__ import annotations

from enum import Enum

from pyrklog.base.exit_codes import Exit

PREFIX = "PK"


class Problem(Enum):
    """Number, exit code, title."""

    # --- start and configuration of a broker ---
    OPTION_VALUE = (1, Exit.CONFIGURATION, "an option of the broker has a wrong value")
    OPTION_UNKNOWN = (2, Exit.CONFIGURATION, "the broker has no such option")
    OPTION_NOT_SERVED = (3, Exit.CONFIGURATION, "the broker cannot do what an option asks for")
    OPTIONS_DISAGREE = (4, Exit.CONFIGURATION, "options of the broker do not go together")
    OPTIONS_FILE = (5, Exit.CONFIGURATION, "the file of the broker's options cannot be read")
    LISTENERS = (6, Exit.CONFIGURATION, "the broker's listeners are wrong")
    PORT_TAKEN = (7, Exit.TEMPORARY, "another program has the port")
    ADDRESS_UNUSABLE = (8, Exit.CONFIGURATION, "the broker cannot listen on this address")
    LISTEN_FAILED = (9, Exit.DISK, "the system refuses to listen")
    DIRECTORY_IN_USE = (10, Exit.TEMPORARY, "another broker uses the directory")
    DIRECTORY_UNUSABLE = (11, Exit.CONFIGURATION, "a directory of the broker cannot be used")
    DIRECTORIES_MISPLACED = (12, Exit.CONFIGURATION, "directories of the broker are misplaced")
    OTHER_BROKERS_DATA = (13, Exit.CONFIGURATION, "the data belongs to another broker")
    OTHER_CLUSTERS_DATA = (14, Exit.CONFIGURATION, "the data belongs to another cluster")
    FOREIGN_DATA = (15, Exit.CONFIGURATION, "another program or a newer version wrote the data")
    ZOOKEEPER_AWAY = (16, Exit.TEMPORARY, "ZooKeeper does not answer the broker")
    ALONE_OR_IN_A_CLUSTER = (17, Exit.CONFIGURATION, "a lone broker's data met a cluster")
    BROKER_NUMBER_MISSING = (18, Exit.CONFIGURATION, "the broker has no number")
    BROKER_NUMBER_TAKEN = (19, Exit.TEMPORARY, "another broker has the number")
    METADATA_DAMAGED = (20, Exit.DISK, "the broker's metadata is damaged")
    METADATA_DISK_FULL = (21, Exit.DISK, "no space is left for the broker's metadata")
    DISK_FAILED = (22, Exit.DISK, "a disk or file of the broker failed")
    HANDOVER = (23, Exit.CONFIGURATION, "data cannot pass between Kafka and pyrklog")
    REPORTER_MISSING = (24, Exit.CONFIGURATION, "a package for reports is missing")
    METADATA_LOST = (25, Exit.DISK, "the cluster's metadata is gone or replaced")

    # --- connection ---
    NO_BROKER = (30, Exit.UNREACHABLE, "no broker was reached")
    BROKER_AWAY = (31, Exit.UNREACHABLE, "a broker or the controller was not reached")
    NO_ANSWER = (32, Exit.TIMED_OUT, "the answer did not come in time")
    NOT_AUTHORIZED = (33, Exit.DENIED, "the brokers refuse this user")
    NOT_SERVED = (34, Exit.FAILED, "the brokers do not know the request")
    PLAIN_TEXT_ONLY = (35, Exit.FAILED, "the command works over plain text only")
    NO_COORDINATOR = (36, Exit.UNREACHABLE, "a group has no coordinator")
    BROKER_REFUSED = (37, Exit.FAILED, "the brokers refuse the request")
    NOT_KAFKA = (38, Exit.UNREACHABLE, "what answers is no broker")
    NOT_PYRKLOG = (39, Exit.FAILED, "only pyrklog's brokers can tell this")

    # --- arguments and files ---
    USAGE = (40, Exit.USAGE, "the command line is not understood")
    ARGUMENT_VALUE = (41, Exit.USAGE, "an argument has a wrong value")
    ARGUMENTS_DISAGREE = (42, Exit.USAGE, "arguments do not go together")
    ARGUMENT_MISSING = (43, Exit.USAGE, "an argument is missing")
    CONFIRMATION_NEEDED = (44, Exit.USAGE, "the command has to be confirmed")
    NOT_CONFIRMED = (45, Exit.FAILED, "the confirmation was wrong")
    STOPPED = (46, Exit.INTERRUPTED, "the command was stopped")
    FILE_NOT_FOUND = (47, Exit.NOT_FOUND, "a file is not there")
    FILE_UNREADABLE = (48, Exit.FAILED, "a file cannot be read")
    FILE_CONTENT = (49, Exit.USAGE, "a given file is of no use here")
    NOT_WRITTEN = (50, Exit.FAILED, "a file or the output cannot be written")
    FILE_EXISTS = (51, Exit.EXISTS, "a file is there already")
    PROGRAM_MISSING = (52, Exit.FAILED, "a program or package is missing")
    UNFORESEEN = (53, Exit.FAILED, "a bug")
    PARTLY_DONE = (54, Exit.PARTIAL, "only a part was done")

    # --- profiles ---
    PROFILE_NOT_FOUND = (55, Exit.NOT_FOUND, "there is no such profile")
    PROFILE_FILE = (56, Exit.USAGE, "the file of profiles is wrong")
    PROFILE_GUARD = (57, Exit.DENIED, "the profile guards its cluster")
    PROFILE_EXISTS = (58, Exit.EXISTS, "the profile is there already")
    PROFILE_NOT_EDITED = (59, Exit.FAILED, "the profile was not edited")

    # --- topics, options and records ---
    TOPIC_NOT_FOUND = (60, Exit.NOT_FOUND, "there is no such topic")
    PARTITION_NOT_FOUND = (61, Exit.NOT_FOUND, "the topic has no such partition")
    TOPIC_EXISTS = (62, Exit.EXISTS, "the topic is there already")
    INTERNAL_TOPIC = (63, Exit.USAGE, "the topic belongs to the brokers")
    TOPIC_REPLACED = (64, Exit.FAILED, "the topic was deleted and created anew")
    OUTSIDE_THE_LOG = (65, Exit.FAILED, "the offset lies outside the log")
    PARTITION_COUNT = (66, Exit.FAILED, "the number of partitions does not fit")
    OPTION_NOT_FOUND = (67, Exit.NOT_FOUND, "there is no such option or subscription")
    OPTION_NOT_CHANGED = (68, Exit.FAILED, "an option cannot be changed like this")
    RECORD_REFUSED = (69, Exit.FAILED, "the broker refuses a record")

    # --- groups ---
    GROUP_NOT_FOUND = (70, Exit.NOT_FOUND, "there is no such group")
    GROUP_ACTIVE = (71, Exit.FAILED, "the group has members")
    NO_OFFSETS = (72, Exit.NOT_FOUND, "the group has no such offsets")
    NO_HISTORY = (73, Exit.NOT_FOUND, "nothing is known of the group's past")

    # --- transactions ---
    TRANSACTION_NOT_FOUND = (74, Exit.NOT_FOUND, "there is no such transaction")
    TRANSACTION_IN_HAND = (75, Exit.FAILED, "the coordinator has the transaction in hand")

    # --- cluster ---
    NOT_AS_PLANNED = (76, Exit.DIFFERS, "replicas are not where the plan wants them")
    BROKER_NOT_FOUND = (77, Exit.NOT_FOUND, "no such broker is alive")
    REASSIGNMENT_REFUSED = (78, Exit.FAILED, "a reassignment is refused")
    REPLICAS_DO_NOT_FIT = (79, Exit.USAGE, "the replicas do not fit on the brokers")
    NO_LEADER = (80, Exit.TIMED_OUT, "partitions have no leader")
    PROMOTION_REFUSED = (86, Exit.DIFFERS, "new replicas cannot be promoted early")
    WOULD_BREAK_A_MINIMUM = (92, Exit.FAILED, "replicas cannot leave a broker")
    NO_ROOM = (104, Exit.DIFFERS, "no disk has room for what would move")

    # --- mirror and redrive ---
    MIRROR_STOPPED = (81, Exit.FAILED, "the mirror cannot go on")
    MIRROR_ARGUMENTS = (82, Exit.USAGE, "the mirror's arguments are wrong")
    MIRROR_NOT_FOUND = (83, Exit.NOT_FOUND, "there is no such mirror, or nothing to mirror")
    NOT_REDRIVEN = (84, Exit.FAILED, "records cannot be redriven")
    PROGRESS_EXPIRED = (85, Exit.FAILED, "the progress of a redrive may have expired")

    # --- data on disk ---
    NO_DATA = (87, Exit.NOT_FOUND, "there is no data of a broker")
    DATA_IN_USE = (88, Exit.DENIED, "a running broker uses the data")
    LOG_DAMAGED = (89, Exit.DIFFERS, "a log file is damaged")
    CACHE_KEPT = (90, Exit.FAILED, "a block cache cannot be drained or removed")
    NOT_EXPORTED = (91, Exit.FAILED, "the data was not handed to Kafka")

    # --- dev clusters and measurements ---
    DEV_NOT_FOUND = (93, Exit.NOT_FOUND, "there is no such dev cluster or node")
    DEV_NOT_RUNNING = (94, Exit.FAILED, "a node of the dev cluster does not run")
    DEV_EXISTS = (95, Exit.EXISTS, "the dev cluster is there already")
    DEV_NOT_STARTED = (96, Exit.FAILED, "a node of the dev cluster did not start")
    DEV_PORTS = (97, Exit.FAILED, "the dev cluster's ports are taken")
    DEV_STATE = (98, Exit.FAILED, "the dev cluster's state cannot be used")
    BENCH_FAILED = (99, Exit.FAILED, "the measurement failed")

    # --- schemas ---
    SCHEMA_UNUSABLE = (100, Exit.FAILED, "a schema cannot be used")
    REGISTRY_AWAY = (101, Exit.UNREACHABLE, "the registry of schemas gives no answer")
    SCHEMA_NOT_FOUND = (102, Exit.NOT_FOUND, "the registry has no such schema")
    NOT_DECODED = (103, Exit.FAILED, "a record does not fit its schema")

    def __init__(self, number: int, exit_code: Exit, title: str) -> None:
        self.number = number
        self.exit = exit_code
        self.title = title

    @property
    def code(self) -> str:
        """``PK07``."""
        return f"{PREFIX}{self.number:02}"


def find(text: str) -> Problem | None:
    """The problem that a person means by ``PK07``, ``pk7`` or ``7``."""
    digits = text.strip().upper().removeprefix("ERROR").strip("[]").removeprefix(PREFIX)
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 3:
        return None
    return next((one for one in Problem if one.number == int(digits)), None)


def lines(problem: Problem, what: str, why: str | None = None, fix: str | None = None) -> str:
    """An error for people: ``error[PK07]: what``, and a line each for why and fix."""
    told = [f"error[{problem.code}]: {_sentence(what)}"]
    if why:
        told.append(f"  why: {_sentence(why)}")
    if fix:
        told.append(f"  fix: {fix}")
    return "\n".join(told)


def _sentence(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
