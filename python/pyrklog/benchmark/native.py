"""The engine in Rust: prebuilt batches, pipelined requests. It costs least, so that the broker is
what is measured; it has neither TLS nor SASL.

``python -m pyrklog.benchmark.native MODE ...`` takes the generator's own command line (``--help``).
"""

from __future__ import annotations

import sys

from pyrklog.benchmark.load import Load, Mode

_MODES = {Mode.PRODUCE: "produce", Mode.CONSUME: "fetch", Mode.LATENCY: "end-to-end"}
BYTES_MAX = 1 << 50
"""No bound but records and time."""


def arguments(load: Load) -> list[str]:
    """The generator's command line."""
    words = [_MODES[load.mode], "--topic", load.topic, "--bootstrap", load.bootstrap]
    words += ["--seconds", f"{load.seconds:.3f}", "--bytes", str(BYTES_MAX)]
    words += ["--warmup-seconds", f"{load.warmup_seconds:.3f}"]
    words += ["--progress", "--until-eof"]
    if load.mode is not Mode.LATENCY:
        words += ["--connections", str(load.connections)]
    if load.mode is Mode.CONSUME:
        if load.follows:
            words.append("--follow")
        if load.records is not None:
            words += ["--last-records", str(load.records)]
        return words
    words += ["--record-bytes", str(load.record_bytes), "--acks", load.acks]
    if load.rate is not None:
        words += ["--rate", f"{load.rate:.3f}"]
    if load.mode is Mode.PRODUCE:
        words += ["--batch-bytes", str(load.batch_bytes)]
        if load.records is not None:
            words += ["--records", str(load.records)]
    return words


def main(words: list[str]) -> int:
    """Prints the result. Returns 2 for a command line that is not understood, 1 for a run that
    failed, with the reason on standard error."""
    from pyrklog._core import run_load

    try:
        sys.stdout.write(run_load(words))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except RuntimeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
