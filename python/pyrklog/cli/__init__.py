"""The command line. Slow modules are imported only by the command that needs them."""

import io
import os
import sys


def main() -> None:
    _open_missing_streams()
    _print_anything()
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)  # Ctrl-C before anything needs an orderly end
    except BrokenPipeError:
        from pyrklog.cli.failures import discard_output

        discard_output()
    except OSError as error:
        from pyrklog.cli.failures import not_written, tell

        tell(not_written(error))
        sys.exit(1)


def _run(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        from pyrklog.cli.serve import parse_fast, serve

        options = parse_fast(arguments[1:])
        if options is not None:
            sys.exit(serve(options))
    if arguments[:1] == ["__complete"]:
        from pyrklog.cli.completion import answer

        answer(arguments[1:])
    from pyrklog.cli.app import app

    app(prog_name="pyrklog")


def _open_missing_streams() -> None:
    """Opens standard streams closed by ``>&-`` as /dev/null: the next socket would get their
    number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _print_anything() -> None:
    """Lets what a terminal's encoding lacks be question marks, not the end of the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
