"""The data source that Spark knows as ``pyrklog``."""

from __future__ import annotations

import logging

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyrklog.spark.columns import check_schema, columns_to_write, schema
from pyrklog.spark.options import SourceOptions, parse
from pyrklog.spark.reader import PyrklogReader
from pyrklog.spark.sink import PyrklogStreamWriter, PyrklogWriter
from pyrklog.spark.sink_options import SinkOptions
from pyrklog.spark.sink_options import parse as parse_sink
from pyrklog.spark.stream import PyrklogStreamReader

logger = logging.getLogger("pyrklog.spark")


class PyrklogSource(DataSource):
    """``format("pyrklog")``; options: ``docs/using/spark.md``."""

    @classmethod
    def name(cls) -> str:
        return "pyrklog"

    def schema(self) -> StructType:
        # Whether it is a stream is not known here: the reader checks all options.
        with_headers = self.options.get("includeheaders", "false").strip().lower() == "true"
        return schema(with_headers=with_headers)

    def reader(self, schema: StructType) -> PyrklogReader:
        check_schema(schema)
        return PyrklogReader(self._parsed(is_stream=False), schema)

    def streamReader(self, schema: StructType) -> PyrklogStreamReader:
        check_schema(schema)
        return PyrklogStreamReader(self._parsed(is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> PyrklogWriter:
        if overwrite:
            raise ValueError('a topic cannot be overwritten: use mode("append")')
        options = self._parsed_sink(is_stream=False)
        has_topic = options.producer.topic is not None
        return PyrklogWriter(options, columns_to_write(schema, has_topic=has_topic))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PyrklogStreamWriter:
        # Spark says "overwrite" in the output mode complete: all rows are appended, as by the stock
        # sink.
        options = self._parsed_sink(is_stream=True)
        has_topic = options.producer.topic is not None
        return PyrklogStreamWriter(options, columns_to_write(schema, has_topic=has_topic))

    def _parsed_sink(self, *, is_stream: bool) -> SinkOptions:
        options = parse_sink(self.options, is_stream=is_stream)
        if options.ignored:
            logger.warning("options without effect: %s", ", ".join(options.ignored))
        return options

    def _parsed(self, *, is_stream: bool) -> SourceOptions:
        options = parse(self.options, is_stream=is_stream)
        if options.ignored:
            logger.warning("options without effect: %s", ", ".join(options.ignored))
        return options
