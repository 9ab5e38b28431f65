"""Loads that measure any Kafka: ``pyrklog bench``.

Each load runs in a process of its own (an *engine*), so that its processor time is its own: the
generator in Rust, a Python program with librdkafka, or Apache Kafka's performance tools. An engine
prints one line of JSON (:mod:`.result`), and how far it is on standard error.
"""
