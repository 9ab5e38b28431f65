"""The simulation: several brokers, a model of ZooKeeper and faults in one process (docs/simulation.md)."""
