"""Runs pytest in two processes side by side: tests of clusters mostly wait, the others mostly work.

With arguments (`make test-python PYTEST_ARGS=...`) there is one process, which gets them.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence

NOT_HERE = "--ignore=tests/faults"
"""`make test-faults` has these."""
CLUSTERS = "tests/cluster"


def main(arguments: Sequence[str]) -> int:
    """The exit code: the first that is not 0."""
    command = [sys.executable, "-m", "pytest", NOT_HERE]
    if arguments:
        return subprocess.run([*command, *arguments], check=False).returncode
    with tempfile.TemporaryFile() as output:
        clusters = subprocess.Popen(
            [*command, "--durations=10", CLUSTERS],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            others = subprocess.run([*command, f"--ignore={CLUSTERS}"], check=False).returncode
            of_clusters = clusters.wait()
        except BaseException:
            clusters.terminate()
            clusters.wait()
            raise
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return others or of_clusters


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
