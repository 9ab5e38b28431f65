"""Transactional clients of the simulation, and what their answers promise."""
