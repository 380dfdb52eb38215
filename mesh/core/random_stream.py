"""Random numbers that can be replayed: a seed, or a position, repeats the stream."""

from __future__ import annotations

_MASK = (1 << 64) - 1


class RandomStream:
    """SplitMix64 (Steele, Lea, Flood 2014): one integer of state, so a snapshot can hold it."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position & _MASK  #: A stream made from this position continues in the same way.

    def draw(self, count: int) -> int:
        """Return a whole number from 0 to `count` - 1."""
        self.position = (self.position + 0x9E3779B97F4A7C15) & _MASK
        mixed = self.position
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % count
