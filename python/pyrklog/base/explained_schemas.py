"""What the problems of schemas mean."""

from collections.abc import Mapping

from pyrklog.base.explained_start import Explanation
from pyrklog.base.problems import Problem

SCHEMAS: Mapping[Problem, Explanation] = {
    Problem.SCHEMA_UNUSABLE: Explanation(
        "What --schema or --key-schema names was read, and is no schema of Avro or Protobuf, goes "
        "beyond the bounds of one, or the registry does not take it.",
        (
            "the wrong file, or one that was cut off",
            "a set of descriptors without the files that it imports",
            "a file with several messages, of which none is named",
            "a schema that is not compatible with those that the subject has",
        ),
        (
            "write the set with `protoc --include_imports --descriptor_set_out=FILE`",
            "name the message as --schema FILE:MESSAGE",
            "see the reason in the message",
        ),
    ),
    Problem.REGISTRY_AWAY: Explanation(
        "The registry of schemas did not answer, refused the user, or what answered is no "
        "registry. Without it neither values can be read nor written.",
        (
            "it does not run, or listens on another port",
            "a name and a password are missing in the URL",
            "the URL is that of a broker",
        ),
        (
            "check the URL, for instance with `curl URL/subjects`",
            "give the password as http://NAME:PASSWORD@HOST:PORT",
        ),
    ),
    Problem.SCHEMA_NOT_FOUND: Explanation(
        "The registry answers, and has no schema of this id or no such subject.",
        (
            "subjects of the topic are not named TOPIC-value and TOPIC-key",
            "nothing was registered for the topic yet",
        ),
        (
            "`curl URL/subjects` lists the subjects; name one as --schema URL#SUBJECT",
            "register a file: `pyrklog produce TOPIC --schema FILE --register URL`",
        ),
    ),
    Problem.NOT_DECODED: Explanation(
        "A key or a value is not what its schema says. Records before it were printed.",
        (
            "it was written with another schema, or is no Avro or Protobuf at all",
            "it begins with a registry's five bytes, and --schema names a file",
            "its schema was deleted from the registry",
        ),
        (
            "`consume --on-bad raw` prints such records as they are, `--on-bad drop` leaves them "
            "out",
            "look at the bytes: `pyrklog consume TOPIC -o OFFSET -n 1 -f '%v{hex}\\n'`",
        ),
    ),
}
