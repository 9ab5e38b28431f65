"""The garbage collector of a broker that has started."""

import gc

YOUNG_OBJECTS = 10_000
"""Objects made before the collector looks at them. With 700, Python's, a busy coordinator spends a
tenth of its time there."""


def collect_garbage_from_now_on() -> None:
    # These objects stay: the collector need not visit them again.
    if not gc.isenabled():
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()
