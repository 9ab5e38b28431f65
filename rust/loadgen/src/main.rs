//! Load generator for Kafka-protocol brokers: prebuilt batches, pipelining, percentiles.
fn main() {}
