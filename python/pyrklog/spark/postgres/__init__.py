"""PostgreSQL: its tables as streams, and batches into its tables, each exactly once.

``format("pyrklog-postgres")``, which ``pyrklog.spark.register`` makes known, reads;
``pyrklog.spark.postgres.upsert`` writes. What is promised:
``docs/understanding/spark-postgres.md``.
"""
