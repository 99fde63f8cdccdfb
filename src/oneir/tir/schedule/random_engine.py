"""Where random decisions are drawn from: a generator whose numbers follow from the seed alone, on any machine."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence

_MULTIPLIER, _MODULUS = 48271, 2147483647


class RandomEngine:
    """The linear congruential generator that C++ calls `minstd_rand`: each number is 48271 times the last one, modulo
    2 ** 31 - 1. Numbers below a bound, and choices by weight, are made of them as the standard library of GCC does, so
    that a seed gives the decisions that it gives elsewhere.
    """

    __slots__ = ("state",)

    def __init__(self, seed: int | None = None):
        self.state = random.randrange(1, _MODULUS) if seed is None else seed % _MODULUS or 1

    def draw(self) -> int:
        """The next number, from 1 to 2 ** 31 - 2."""
        self.state = self.state * _MULTIPLIER % _MODULUS
        return self.state

    def below(self, count: int) -> int:
        """A number from 0 up to, not including, `count`, each as likely as another."""
        if count == 1:
            return 0
        size = (_MODULUS - 1) // count
        while (number := self.draw()) >= size * count:
            pass
        return number // size

    def position(self, weights: Sequence[float]) -> int:
        """A position, as likely as its weight is large."""
        ends = list(itertools.accumulate(weights))
        drawn = (self.draw() + self.draw() * _MODULUS) / _MODULUS**2
        return min(bisect_right(ends, drawn * ends[-1]), len(ends) - 1)

    def fork_seed(self) -> int:
        """A number from which another generator can start."""
        return self.draw() * 32767 % 1999999973 or 1
