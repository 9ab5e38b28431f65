"""The simulation: brokers, a model of ZooKeeper and faults in one process (simulation.md)."""
