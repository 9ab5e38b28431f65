"""``pyrklog profile edit`` without options: the whole file in the user's editor."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyrklog.base.problems import Problem
from pyrklog.cli.failures import CliError
from pyrklog.cli.profile_file import locked, read_text, replace_text

_START = """\
# Profiles of pyrklog; `pyrklog profile --help` changes them, too.
#
# profile = "prod"
#
# [profiles.prod]
# brokers = ["broker-1:9092", "broker-2:9092"]
# read_only = true
# confirm = "name"
#
# [profiles.prod.properties]
# "security.protocol" = "SASL_SSL"
"""


def edit_file(path: Path, environ: Mapping[str, str]) -> bool:
    """Whether the file was changed. Raises :class:`CliError`; an edited text that makes no sense
    stays beside the file, which stays as it was."""
    words = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or "vi")
    with locked(path):  # makes the folder
        before = read_text(path)
    # Another process of the same user may read it, nobody else (mode 0600).
    number, name = tempfile.mkstemp(prefix="config-", suffix=".toml", dir=path.parent)
    draft = Path(name)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(before or _START)
    _run(words, draft)
    after = read_text(draft)
    if after in (before, "" if before else _START):
        draft.unlink()
        return False
    try:
        with locked(path):
            if read_text(path) != before:
                what = f"{path} was changed by another command meanwhile"
                raise CliError(Problem.PROFILE_NOT_EDITED, what)
            replace_text(path, after)
    except CliError as error:
        kept = f"the file stays as it was, and {draft} has your text"
        raise CliError(error.problem, f"{error.what}; {kept}", error.fix) from None
    draft.unlink()
    return True


def _run(words: list[str], draft: Path) -> None:
    fix = "name an editor in the environment's EDITOR"
    try:
        done = subprocess.run([*words, str(draft)], check=False)
    except OSError as error:
        draft.unlink()
        what = f"cannot run {words[0]}: {error.strerror or error}"
        raise CliError(Problem.PROFILE_NOT_EDITED, what, fix) from None
    if done.returncode:
        draft.unlink()
        what = f"{words[0]} ended with {done.returncode}; nothing was changed"
        raise CliError(Problem.PROFILE_NOT_EDITED, what)
