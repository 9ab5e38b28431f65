"""Pipelines to start from: short programs, each a file to copy and change.

``python -m pyrklog.spark.pipelines NAME BOOTSTRAP FOLDER`` runs one on the topics that it names.
What each does beside Kafka Streams' operators: ``docs/using/spark.md``.
"""
