"""Taking over a directory that Apache Kafka wrote, and giving one back; see adoption.md."""
