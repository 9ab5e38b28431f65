"""Changes ``config.toml``: comments and order stay, and only the user may read it (mode 0600).

A change is checked before the file is replaced, in one step; two commands change it one after the
other.
"""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyrklog.base.problems import Problem
from pyrklog.cli.colour import AUTO
from pyrklog.cli.failures import CliError
from pyrklog.cli.profiles import BY_NAME, FILE_VARIABLE, Profile, Profiles, parse, refuse_bad_name

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def change(path: Path, act: "Callable[[TOMLDocument], None]") -> Profiles:
    """Applies ``act`` to the file, which need not exist yet. Raises :class:`CliError`, and leaves
    the file as it was then."""
    with locked(path):
        return replace_text(path, _changed(path, act))


def checked(path: Path, act: "Callable[[TOMLDocument], None]") -> Profiles:
    """What :func:`change` would make of the file, which stays as it is. Raises
    :class:`CliError`."""
    return _read(_changed(path, act), path)


def _changed(path: Path, act: "Callable[[TOMLDocument], None]") -> str:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    before = read_text(path)
    parse(before.encode(), path)  # its errors are sentences
    document = tomlkit.parse(before)
    act(document)
    try:
        return tomlkit.dumps(document)
    except TOMLKitError as error:  # a text that TOML has no form for
        raise CliError(Problem.PROFILE_FILE, f"{path} cannot be written: {error}") from None


def _read(text: str, path: Path) -> Profiles:
    found = parse(text.encode(), path)
    for name in found.names():
        refuse_bad_name(name)
        found.get(name)
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """While no other command changes the file. Makes its folder."""
    folder = path.parent
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        what = f"the folder {folder} cannot be used: {error.strerror or error}"
        raise CliError(Problem.NOT_WRITTEN, what, f"name a file with {FILE_VARIABLE}") from None
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def read_text(path: Path) -> str:
    """Empty without a file. Raises :class:`CliError`."""
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CliError(
            Problem.FILE_UNREADABLE, f"cannot read {path}: {error.strerror or error}"
        ) from None
    except UnicodeDecodeError:
        raise CliError(Problem.PROFILE_FILE, f"{path} is no text in UTF-8") from None


def replace_text(path: Path, text: str) -> Profiles:
    """Puts a checked text in the place of the file's. A symbolic link stays one."""
    found = _read(text, path)
    target = Path(os.path.realpath(path))
    try:
        number, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), FILE_MODE)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise CliError(
            Problem.NOT_WRITTEN, f"cannot write {path}: {error.strerror or error}"
        ) from None
    return found


def put(document: "TOMLDocument", profile: Profile) -> None:
    """Adds a profile, or writes what it says over what is there."""
    import tomlkit

    tables = _tables(document)
    table = tables.get(profile.name)
    if table is None:
        table = tables[profile.name] = tomlkit.table()
    _set(table, "brokers", list(profile.brokers), not profile.brokers)
    _set(table, "colour", profile.colour, profile.colour == AUTO)
    _set(table, "read_only", profile.read_only, not profile.read_only)
    _set(table, "confirm", BY_NAME, not profile.confirm)
    _set(table, "dev", profile.dev, profile.dev is None)
    _put_properties(table, profile.properties)


def remove(document: "TOMLDocument", name: str) -> None:
    """Removes a profile, and its name where it is in use."""
    _tables(document).pop(name, None)
    if document.get("profile") == name:
        del document["profile"]


def select(document: "TOMLDocument", name: str | None) -> None:
    """``profile = "NAME"``, or none."""
    if name is None:
        document.pop("profile", None)
    else:
        document["profile"] = name


def _tables(document: "TOMLDocument") -> Any:
    import tomlkit

    if "profiles" not in document:
        document["profiles"] = tomlkit.table(is_super_table=True)
    return document["profiles"]


def _set(table: Any, key: str, value: Any, is_default: bool) -> None:
    """Leaves alone what says the same already, with its comment."""
    if is_default:
        table.pop(key, None)
    elif table.get(key) != value:
        table[key] = value


def _put_properties(table: Any, properties: Mapping[str, str]) -> None:
    import tomlkit

    if not properties:
        table.pop("properties", None)
        return
    if "properties" not in table:
        table["properties"] = tomlkit.table()
    there = table["properties"]
    for key in [key for key in there if key not in properties]:
        del there[key]
    for key, value in properties.items():
        if key not in there or str(there[key]) != value:
            there[key] = value
