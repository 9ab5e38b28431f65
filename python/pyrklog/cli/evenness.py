from collections.abc import Sequence


def ratio(values: Sequence[float]) -> float:
    """Max/mean; 1 if all are alike, also all 0."""
    total = sum(values)
    return 1.0 if total <= 0 else max(values) * len(values) / total
