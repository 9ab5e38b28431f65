"""Client metrics (KIP-714): who is to push what, and what was pushed. See
docs/understanding/client-metrics.md.
"""
