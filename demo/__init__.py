"""A year of real flights through pyrklog and a PySpark pipeline: ``make demo``,
``python -m demo``."""
