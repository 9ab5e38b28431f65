"""Builds the Rust tests that the arguments name, as `cargo test` does, and runs their programs.

    python ci/rust_tests.py --workspace --locked

Some programs run at the same time, where cargo runs one after the other: many tests wait, for a
disk that is slow or for a broker that ends. What a program printed is shown once it has ended; the
exit status is 1 when one failed. Documentation tests are not run, since no crate has any.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

_AT_ONCE = int(os.environ.get("RUST_TEST_PROGRAMS", "3"))
_LARGE = "tests/all.rs"
# The tests of most files of a crate, of which many wait: as many at once as of several programs.
_LARGE_THREADS = 2 * (os.cpu_count() or 1)


class Program(NamedTuple):
    """A built test program, its name for readers, and the folder of its crate."""

    path: str
    name: str
    folder: Path


def _build(arguments: list[str]) -> list[Program]:
    """Raises `CalledProcessError` when cargo cannot build them."""
    built = subprocess.run(
        ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments],
        stdout=subprocess.PIPE,
        check=True,
    )
    programs = []
    for message in map(json.loads, built.stdout.splitlines()):
        if message["reason"] != "compiler-artifact" or not message["profile"]["test"]:
            continue
        if message["executable"]:
            folder = Path(message["manifest_path"]).parent
            source = Path(message["target"]["src_path"]).relative_to(folder)
            programs.append(Program(message["executable"], f"{folder.name}/{source}", folder))
    return programs


def _run(program: Program) -> tuple[Program, subprocess.CompletedProcess[bytes]]:
    threads = [f"--test-threads={_LARGE_THREADS}"] if program.name.endswith(_LARGE) else []
    # Cargo starts a crate's tests in its folder, too.
    ended = subprocess.run(
        [program.path, "--color=never", *threads],
        cwd=program.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return program, ended


def main(arguments: list[str]) -> int:
    """The number for `sys.exit`."""
    try:
        programs = _build(arguments)
    except subprocess.CalledProcessError as error:
        return error.returncode
    if not programs:
        print("cargo built no test program", file=sys.stderr)
        return 1
    failed = []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        # The longest first.
        programs.sort(key=lambda program: not program.name.endswith(_LARGE))
        for done in as_completed([pool.submit(_run, program) for program in programs]):
            program, ended = done.result()
            print(f"     Running {program.name}", flush=True)
            sys.stdout.buffer.write(ended.stdout)
            sys.stdout.flush()
            if ended.returncode:
                failed.append(f"{program.name} (exit status {ended.returncode})")
    print(f"{len(programs)} test programs ran, {len(failed)} failed")
    for one in failed:
        print(f"  failed: {one}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
