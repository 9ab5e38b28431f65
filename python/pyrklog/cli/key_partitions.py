"""Which partition a key belongs to, and how many keys move when partitions are added. Pure.

By murmur2, as Java's and most other clients place records with keys (Kafka's
``BuiltInPartitioner``, librdkafka's ``murmur2``). librdkafka's own default is another hash, which
moves the same share.
"""

from fractions import Fraction
from math import gcd

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The unsigned 32-bit hash of Kafka's ``Utils.murmur2``, which reads whole words as
    little-endian."""
    value = _SEED ^ len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> _SHIFT) * _FACTOR & _MASK
        value = (value * _FACTOR & _MASK) ^ word
    if len(data) > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    value = (value ^ value >> 13) * _FACTOR & _MASK
    return value ^ value >> 15


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def moved_share(before: int, after: int) -> Fraction:
    """The share of keys whose partition changes, for a hash that spreads evenly.

    Among as many hashes as the least common multiple, the smaller number of partitions keep one
    each.
    """
    return 1 - Fraction(min(before, after) * gcd(before, after), before * after)
