"""Archives of the classes that Java processes of tests load, so that each of hundreds starts with a
part of the work: classes in an archive are parsed and verified already.

``python -m tests.support.class_archives NAME``, where NAME is ``kafka`` or ``spark``, runs what
tests run most, and keeps the classes that were loaded in ``.cache/NAME.jsa``
(:func:`tests.support.jvm.archive`). A process whose class path is another reads its jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import jvm, kafka_tools
from tests.support.kafka_broker import KafkaBroker
from tests.support.spark import session_without_jars, stop_session_without_jars

_TOPIC = "training"
_RECORDS = 20
_TOOLS = (
    f"topics --describe --topic {_TOPIC}",
    f"verifiable-producer --topic {_TOPIC} --max-messages {_RECORDS}",
    f"console-consumer --topic {_TOPIC} --from-beginning --max-messages {_RECORDS} --group g",
    f"configs --describe --entity-type topics --entity-name {_TOPIC} --all",
    f"get-offsets --topic {_TOPIC}",
    "consumer-groups --describe --all-groups",
    "log-dirs --describe",
)


def kafka(archive: Path, folder: Path) -> None:
    """Of a broker, and of tools on it: several processes, so it takes lists of their classes."""
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:DumpLoadedClassList={folder}/%p.classes"
    try:
        with KafkaBroker(folder / "kafka") as broker:
            created = f"topics --create --topic {_TOPIC}"
            found = kafka_tools.run(broker.bootstrap, [created, *_TOOLS])
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
    assert [one.status for one in found] == [0] * len(found), found
    lines = [line for one in folder.glob("*.classes") for line in one.read_text().splitlines()]
    listed = folder / "all"
    listed.write_text("".join(f"{line}\n" for line in dict.fromkeys(lines)))
    flags = [
        "-Xshare:dump",
        f"-XX:SharedClassListFile={listed}",
        f"-XX:SharedArchiveFile={archive}",
    ]
    command = [jvm.java(), *flags, "-Xlog:disable", "-cp", str(jvm.KAFKA_JARS / "*")]
    subprocess.run(command, check=True, timeout=300)


def spark(archive: Path, folder: Path) -> None:
    """Of a session with a query and a stream."""
    flags = (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable")
    session = session_without_jars(folder / "warehouse", java_flags=flags)
    frame = session.range(100).selectExpr("CAST(id % 7 AS STRING) AS key", "id AS value")
    frame.groupBy("key").sum("value").collect()
    frame.write.parquet(str(folder / "table"))
    rows = session.readStream.schema(frame.schema).parquet(str(folder / "table"))
    query = (
        rows.mapInArrow(lambda batches: batches, rows.schema)
        .writeStream.format("parquet")
        .option("path", str(folder / "copy"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    stop_session_without_jars()


TRAININGS = {"kafka": (jvm.KAFKA_JARS, kafka), "spark": (jvm.SPARK_JARS, spark)}


def main(name: str) -> None:
    jars, train = TRAININGS[name]
    jvm.archive(jars).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
        archive = Path(folder, "archive")
        train(archive, Path(folder))
        archive.rename(jvm.archive(jars))


if __name__ == "__main__":
    main(*sys.argv[1:])
