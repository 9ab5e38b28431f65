"""The command line. Nothing slow is imported before the command that needs it is known."""

import sys


def main() -> None:
    """Entry point of ``pyrklog``; ends the process with the command's exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        from pyrklog.cli.serve import parse_fast, serve

        options = parse_fast(arguments[1:])
        if options is not None:
            try:
                code = serve(options)
            except KeyboardInterrupt:
                code = 130  # Ctrl-C before there is anything to end in good order
            sys.exit(code)
    from pyrklog.cli.app import app

    app(prog_name="pyrklog")
