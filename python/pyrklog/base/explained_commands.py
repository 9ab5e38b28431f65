"""What the problems of reaching brokers, of arguments, files and profiles mean."""

from collections.abc import Mapping

from pyrklog.base.explained_start import Explanation
from pyrklog.base.problems import Problem

CONNECTION: Mapping[Problem, Explanation] = {
    Problem.NO_BROKER: Explanation(
        "None of the brokers of -b, PYRKLOG_BOOTSTRAP or the profile answers.",
        (
            "no broker runs there, or it listens on another port or address",
            "a firewall, or a container's network, is between",
            "the listener speaks TLS, and the command does not, or the other way round",
        ),
        (
            "`pyrklog serve` starts a broker, `pyrklog dev start` a cluster",
            "name the broker with -b HOST:PORT; `pyrklog doctor -b HOST:PORT` looks closer",
        ),
    ),
    Problem.BROKER_AWAY: Explanation(
        "The cluster answers, but a broker that the command needs (the leader of a partition, the "
        "controller, a group's coordinator) does not.",
        (
            "the broker is down, or just starting",
            "advertised.listeners has an address that is not reached from here",
            "a new leader or controller is being chosen",
        ),
        (
            "`pyrklog cluster health` and `pyrklog cluster brokers` tell which broker it is",
            "set advertised.listeners on that broker to an address that clients reach",
        ),
    ),
    Problem.NO_ANSWER: Explanation(
        "The request was sent, or waits for a broker, and its answer did not come within "
        "--timeout. A change that the command asked for may have been made; a command that only "
        "reads has changed nothing.",
        (
            "something that is no broker listens there, and never answers",
            "a broker that is overloaded, paused, or waits for its disk",
            "partitions without a leader, or with fewer replicas in sync than min.insync.replicas",
            "a network that loses packets",
        ),
        (
            "`pyrklog cluster health` tells what the brokers find wrong",
            "after a change look whether it was made; then try again with a longer --timeout",
            "check the port given with -b",
        ),
    ),
    Problem.NOT_AUTHORIZED: Explanation(
        "The brokers refuse the user or the certificate, or do not let this user do it.",
        (
            "a wrong name, password or token in -X, or a certificate that is not trusted",
            "an ACL is missing for the topic, the group or the cluster",
        ),
        (
            "check sasl.username, sasl.password and ssl.* of -X or of the profile",
            "ask who runs the cluster for the ACL that the message names",
        ),
    ),
    Problem.NOT_SERVED: Explanation(
        "The brokers do not have the request that the command needs, or only in versions that it "
        "does not speak.",
        ("an older Kafka", "a Kafka whose mode, KRaft or ZooKeeper, lacks the request"),
        ("use the tool that comes with that Kafka, or upgrade the brokers",),
    ),
    Problem.PLAIN_TEXT_ONLY: Explanation(
        "The command speaks to brokers by itself, without TLS and SASL; security.protocol asks "
        "for one of them.",
        ("a profile or -X with security.protocol=SSL, SASL_PLAINTEXT or SASL_SSL",),
        (
            "give a PLAINTEXT listener with -b, where there is one",
            "take Kafka's own tool, which the message names where there is one",
        ),
    ),
    Problem.NO_COORDINATOR: Explanation(
        "The topic that keeps groups or transactions does not exist, or its partition has no "
        "leader, so that nobody answers for the group.",
        (
            "no group has ever been used, and there are fewer brokers than "
            "offsets.topic.replication.factor",
            "the brokers with the replicas of that partition are down",
        ),
        (
            "start as many brokers as the factor says (3 in a cluster), or set it lower before "
            "the first use",
            "`pyrklog cluster health` names partitions without a leader",
        ),
    ),
    Problem.BROKER_REFUSED: Explanation(
        "The brokers answer the request with an error of Kafka's protocol, which the message "
        "has, and which has no number of its own here.",
        ("a value that the broker does not take", "a state in which the request makes no sense"),
        ("see the message, and the broker's log (`pyrklog dev logs`, journalctl)",),
    ),
    Problem.NOT_KAFKA: Explanation(
        "Something listens at the address, and it does not speak Kafka's protocol.",
        (
            "the port of HTTP (Kafka port + 100), of ZooKeeper or of a controller was given",
            "a TLS listener was reached without TLS",
        ),
        ("check the port given with -b", "for TLS give -X security.protocol=SSL"),
    ),
    Problem.NOT_PYRKLOG: Explanation(
        "The command asks for something that Kafka's protocol does not have; only brokers of "
        "pyrklog tell it.",
        ("-b names brokers of Apache Kafka or another product",),
        ("see the message for what does the same there",),
    ),
}
ARGUMENTS: Mapping[Problem, Explanation] = {
    Problem.USAGE: Explanation(
        "There is no such command or option, or there are arguments too many.",
        (
            "a mistyped name",
            "the word of another tool: the message has ours where there is one",
            "an option of a command before it, or the other way round",
        ),
        ("`pyrklog COMMAND --help` shows what it takes",),
    ),
    Problem.ARGUMENT_VALUE: Explanation(
        "An argument or an option of the command has a value that it does not take.",
        (
            "a number out of range, a time without a unit, a name that is not in the list",
            "an empty text, as from a shell variable that is not set",
            "KEY=VALUE without the equals sign",
        ),
        ("give it as the message says; `pyrklog COMMAND --help` has the form",),
    ),
    Problem.ARGUMENTS_DISAGREE: Explanation(
        "The options exclude each other, or one makes sense only with another.",
        ("options from two examples were put together",),
        ("leave one out, or add the one that the message names",),
    ),
    Problem.ARGUMENT_MISSING: Explanation(
        "Something that the command cannot guess is missing: what to change, which topic, which "
        "file.",
        ("an argument was left out, or was empty",),
        ("add what the message names",),
    ),
    Problem.CONFIRMATION_NEEDED: Explanation(
        "The command deletes or loses something, and asks first; there is no terminal to ask on, "
        "or it wants an option that says so.",
        ("the command runs in a script or in a pipe",),
        ("add -y, or the option that the message names, once you are sure",),
    ),
    Problem.NOT_CONFIRMED: Explanation(
        "What was typed is not the name that was asked for. Nothing was changed.",
        ("a mistake, or a change of mind",),
        ("run it again, and type the name; -y does not ask",),
    ),
    Problem.STOPPED: Explanation(
        "The command was ended before it was done, by Ctrl-C or an end of input at a question.",
        ("Ctrl-C, Ctrl-D",),
        ("run it again; the message says whether something was done",),
    ),
    Problem.FILE_NOT_FOUND: Explanation(
        "A file or directory that was named does not exist.",
        ("a mistyped path", "a path relative to another folder"),
        ("give the path from here, or the whole path",),
    ),
    Problem.FILE_UNREADABLE: Explanation(
        "A file is there, and cannot be read.",
        ("missing permission", "a folder in the place of a file", "a failing disk"),
        ("check it with `ls -l`; run the command as a user who may read it",),
    ),
    Problem.FILE_CONTENT: Explanation(
        "A file was read, and is not what the command takes: another format, another encoding, a "
        "line that makes no sense, or too large.",
        ("the wrong file", "a file that was edited by hand, or cut off"),
        (
            "see the line that the message names",
            "make the file with the command that writes it, such as `group export` or "
            "`cluster reassign plan`",
        ),
    ),
    Problem.NOT_WRITTEN: Explanation(
        "A file, or what was to be printed, could not be written.",
        ("a full disk", "missing permission, or a folder that does not exist"),
        ("free some space, or name another place; what was printed before may be incomplete",),
    ),
    Problem.FILE_EXISTS: Explanation(
        "The command would overwrite a file that holds something else.",
        ("an earlier run wrote there",),
        ("name another file or folder, remove it, or give the option that overwrites",),
    ),
    Problem.PROGRAM_MISSING: Explanation(
        "The command needs a program or a package that is not installed.",
        (
            "pyrklog was installed without an extra (arrow, spark)",
            "no Java for `pyrklog dev` with ZooKeeper",
        ),
        ("run the command that the message has, such as pip install ...",),
    ),
    Problem.UNFORESEEN: Explanation(
        "An exception that nobody has foreseen ended the command.",
        ("a bug of pyrklog or of a library",),
        (
            "run it again with PYRKLOG_TRACEBACK=1 in the environment, and report what it shows",
            "`pyrklog doctor --bundle FILE` gathers what a report needs, without secrets",
        ),
    ),
    Problem.PARTLY_DONE: Explanation(
        "Of several items some were done and some were not; the messages say which.",
        (
            "some partitions have no leader, or a record was refused",
            "brokers went away in between",
        ),
        ("mend what the messages name, and run it again for the rest",),
    ),
}
PROFILES: Mapping[Problem, Explanation] = {
    Problem.PROFILE_NOT_FOUND: Explanation(
        "No profile has this name, no profile is in use, or the profile lacks the property.",
        ("a mistyped name of -p or PYRKLOG_PROFILE", "another file in PYRKLOG_CONFIG"),
        ("`pyrklog profile list` shows them; `pyrklog profile create NAME` makes one",),
    ),
    Problem.PROFILE_FILE: Explanation(
        "The file of profiles is no TOML, or has something that profiles do not.",
        ("an edit by hand",),
        (
            "`pyrklog profile edit` opens it, and takes it only when it is right",
            "-p none does without profiles",
        ),
    ),
    Problem.PROFILE_GUARD: Explanation(
        "The profile is read-only, or its name was not typed where it asks for it before a "
        "change. Nothing was changed.",
        ("the command would change a cluster that the profile guards",),
        (
            "choose another profile with -p, if this is the wrong cluster",
            "`pyrklog profile edit NAME` changes the guard",
        ),
    ),
    Problem.PROFILE_EXISTS: Explanation(
        "A profile of this name is in the file.",
        ("it was created or imported before",),
        ("choose another name, or `pyrklog profile edit NAME`",),
    ),
    Problem.PROFILE_NOT_EDITED: Explanation(
        "The editor could not run or failed, or another command changed the file meanwhile. The "
        "file stays as it was.",
        ("EDITOR is not set, or names no program", "two edits at a time"),
        ("name an editor in the environment's EDITOR", "edit it again"),
    ),
}
