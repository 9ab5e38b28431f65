"""The data source that Spark knows as ``pyrklog``."""

from __future__ import annotations

import logging
from dataclasses import replace

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from pyrklog.spark.columns import SchemaError, check_schema, columns_to_write, schema, value_of
from pyrklog.spark.decode_options import Decoding, decoding
from pyrklog.spark.decoding import is_judged, known
from pyrklog.spark.given import Given
from pyrklog.spark.options import SourceOptions, parse
from pyrklog.spark.reader import NarrowedReader, PyrklogReader
from pyrklog.spark.registered import is_wanted, latest
from pyrklog.spark.sampled import sampled
from pyrklog.spark.sink import PyrklogStreamWriter, PyrklogWriter
from pyrklog.spark.sink_options import SinkOptions
from pyrklog.spark.sink_options import parse as parse_sink
from pyrklog.spark.stream import PyrklogStreamReader

logger = logging.getLogger("pyrklog.spark")

_STREAM = "a stream of decoded values needs a schema: give the option, or the columns by schema()"


class PyrklogSource(DataSource):
    """``format("pyrklog")``; options: ``docs/using/spark.md``."""

    # Spark asks for the schema first, and sends this object, as it is then, to where the readers
    # are made.
    _is_sampled = False
    _latest: str | None = None

    @classmethod
    def name(cls) -> str:
        return "pyrklog"

    def schema(self) -> StructType:
        # Whether it is a stream is not known here: the reader checks all options.
        with_headers = self.options.get("includeheaders", "false").strip().lower() == "true"
        return schema(with_headers=with_headers, value=self._values())

    def reader(self, schema: StructType) -> PyrklogReader:
        options = self._parsed(is_stream=False)
        _check(schema, options)
        kind = NarrowedReader if options.push_filters else PyrklogReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> PyrklogStreamReader:
        options = self._parsed(is_stream=True)
        if self._is_sampled:
            raise SchemaError(_STREAM)
        _check(schema, options)
        return PyrklogStreamReader(options, schema)

    def _values(self) -> StructType | None:
        """What decoded values have; None for raw ones."""
        given = Given({name.lower(): value for name, value in self.options.items()})
        found = decoding(given)
        given.raise_mistakes()
        if found is None:
            return None
        found = self._with_schema(found)
        fields = known(found)
        if fields is not None:
            return fields
        self._is_sampled = True
        options = parse(self.options, is_stream=False)
        try:
            return sampled(options, found)
        except Exception as error:
            error.add_note(f"A schema was to be inferred from a sample; {_STREAM}")
            raise

    def _with_schema(self, found: Decoding) -> Decoding:
        """With the schema of the registry, if it is wanted. It is asked for once."""
        if not is_wanted(found):
            return found
        if self._latest is None:
            self._latest = latest(found, self.options)
        return replace(found, schema=self._latest)

    def writer(self, schema: StructType, overwrite: bool) -> PyrklogWriter:
        if overwrite:
            raise ValueError('a topic cannot be overwritten: use mode("append")')
        options = self._parsed_sink(is_stream=False)
        return PyrklogWriter(options, _columns_to_write(schema, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> PyrklogStreamWriter:
        # Spark says "overwrite" in the output mode complete: all rows are appended, as by the stock
        # sink.
        options = self._parsed_sink(is_stream=True)
        return PyrklogStreamWriter(options, _columns_to_write(schema, options))

    def _parsed_sink(self, *, is_stream: bool) -> SinkOptions:
        options = parse_sink(self.options, is_stream=is_stream)
        if options.ignored:
            logger.warning("options without effect: %s", ", ".join(options.ignored))
        return options

    def _parsed(self, *, is_stream: bool) -> SourceOptions:
        options = parse(self.options, is_stream=is_stream)
        if options.ignored:
            logger.warning("options without effect: %s", ", ".join(options.ignored))
        found = options.decoding
        return options if found is None else replace(options, decoding=self._with_schema(found))


def _columns_to_write(given: StructType, options: SinkOptions) -> list[str]:
    """Raises SchemaError. A time is named in the log: the stock sink passes over it, so that a
    query that was written for it would set times, by which retention goes, unseen."""
    found = columns_to_write(given, has_topic=options.producer.topic is not None)
    if "timestamp" in found:
        logger.warning(
            "column timestamp becomes the time of the records, by which retention goes: "
            'drop("timestamp") for the present'
        )
    return found


def _check(asked: StructType, options: SourceOptions) -> None:
    """Raises SchemaError for columns that the source does not have."""
    found = options.decoding
    if found is None:
        check_schema(asked)
        return
    fields = known(found) or value_of(asked)
    if fields is None:
        if is_judged(found):
            asking = "badRecords" if found.bad_records is not None else f"onBad={found.on_bad}"
            raise SchemaError(f"{asking} needs to know what fits: ask for value, or give a schema")
        check_schema(asked, is_decoded=True)
        return
    check_schema(asked, fields, is_decoded=True)
