"""Commands of ours, run in this process."""

from collections.abc import Callable

from typer.testing import CliRunner

from pyrklog.cli.app import app
from tests.support.waiting import wait_until

Run = Callable[..., str]


def runner(bootstrap: str) -> Run:
    """Runs a command at a broker; it must end with ``code``. Returns its standard output, or its
    standard error if it failed."""

    def call(*arguments: str, code: int = 0, stdin: str | bytes | None = None) -> str:
        command = ["-b", bootstrap, "--timeout", "20", *arguments]
        done = CliRunner().invoke(app, command, input=stdin)
        assert done.exit_code == code, f"{arguments}: {done.stdout}{done.stderr}{done.exception}"
        return done.stdout if code in (0, 8) else done.stderr

    return call


def create(run: Run, topic: str, *options: str) -> None:
    """Creates a topic and waits until the broker shows it: Apache Kafka's learns of it later."""
    run("topic", "create", topic, *options)
    wait_until(
        lambda: topic in run("topic", "list", "-o", "name").splitlines(), f"{topic} is not listed"
    )
