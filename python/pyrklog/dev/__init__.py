"""Clusters on one machine, for development: real brokers, a real ZooKeeper, faults at will.

``pyrklog dev`` is the command line of this package. Linux only: processes are told apart by
``/proc`` and signalled through pidfds.
"""
