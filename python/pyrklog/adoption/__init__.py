"""Adopts a directory of Apache Kafka, and exports one back; see adoption.md."""
