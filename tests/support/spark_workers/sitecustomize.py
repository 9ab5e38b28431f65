"""What each Python process of Spark's runs first, since :mod:`tests.support.spark` puts this folder
before all others on its path.

PySpark forks each worker off a daemon that has imported next to nothing, and each imports the same
half thousand modules: more processor time than what our tests ask of it. Here the daemon imports
them. PySpark does not, since some libraries start threads, which a fork would not take along; with
the environment that :func:`tests.support.spark.worker_environment` gives there is one thread only.
``tests/spark/test_standalone.py`` goes without, as users do.
"""

import gc
import sys
from importlib import import_module

_MODULES = (
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyrklog.spark.postgres.source",
    "pyrklog.spark.source",
)

if "pyspark.daemon" in sys.orig_argv:
    for _module in _MODULES:
        import_module(_module)
    gc.freeze()
