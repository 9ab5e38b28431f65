"""Clusters on one machine, for development: real brokers, a real ZooKeeper, injected faults.

The command line is ``pyrklog dev``. Linux only: ``/proc`` tells processes apart, pidfds carry
signals.
"""
