"""Benchmarks: side by side with Apache Kafka, and of the seam. See benchmark-method.md."""
