"""Simplifications that schedules and lowering rely on: the text before, and what must come out, node for node."""

from __future__ import annotations

from typing import Any

import pytest
from arith_text import build, show

from oneir import arith
from oneir.ir import expr as e
from oneir.ir.structural import structural_equal

x, y, z = (e.Var(name, "int32") for name in "xyz")
i, j, k, t = (e.Var(name, "int32") for name in "ijkt")
n, m = e.SizeVar("n", "int32"), e.SizeVar("m", "int32")
p = e.Var("p", "bool")
q = e.Var("q", "bool")
f = e.Var("f", "float32")
a8, b8 = e.Var("a8", "int8"), e.Var("b8", "int8")
u, v = e.Var("u", "uint8"), e.Var("v", "uint8")
w = e.Var("w", "int64")
NAMES = {name: value for name, value in globals().items() if isinstance(value, e.Var)}


def analyzer() -> arith.Analyzer:
    """i in [0, 8), j in [0, 4), k in [0, 16), t in [0, n); n and m are not negative; x, y, z are anything."""
    result = arith.Analyzer()
    for variable, extent in ((i, 8), (j, 4), (k, 16), (t, n)):
        result.bind(variable, e.Range(0, extent))
    return result


def check(text: str, simplified: Any) -> None:
    before, _, after = text.partition(" -> ")
    expected = build(after, NAMES)
    result = simplified(build(before, NAMES))
    assert structural_equal(result, expected), f"{before}\nexpected {show(expected)}\nfound    {show(result)}"


SUMS = """
x + 0 -> x
0 + x -> x
x * 1 -> x
x * 0 -> 0
x - x -> 0
x + y - y -> x
x - (x + y) -> 0 - y
1 + x -> x + 1
x + 1 + 2 -> x + 3
x + 3 - 5 -> x - 2
x - 1 + 1 -> x
x + x -> x * 2
x * 2 + x * 3 -> x * 5
x * 4 - x -> x * 3
x * y - y * x -> 0
x * y + x * z -> (y + z) * x
(x + 1) * 4 -> x * 4 + 4
(x + y) * 4 -> x * 4 + y * 4
(x - 2) * 4 -> x * 4 - 8
2 * x * 3 -> x * 6
j + i * 4 -> i * 4 + j
5 - (x + 2) -> 3 - x
0 - (0 - x) -> x
x - y * (-2) -> y * 2 + x
x - 1 -> x - 1
x * (-1) -> x * (-1)
(-1) * x -> x * (-1)
i * 32 + j * 4 + 128 -> i * 32 + j * 4 + 128
x * 4 + y + x * 4 -> x * 8 + y
"""

DIVISION = """
x // 1 -> x
x % 1 -> 0
i // 8 -> 0
i % 8 -> i
k // 4 // 2 -> k // 8
k % 8 % 4 -> k % 4
(i * 8) // 4 -> i * 2
(i * 4) // 8 -> i // 2
(i * 8) % 4 -> 0
(i * 4) % 8 -> i % 2 * 4
(i * 4 + j) // 4 -> i
(i * 4 + j) % 4 -> j
(x * 4 + j) // 4 -> x
(x * 4 + j) % 4 -> j
(i * 4 + j) // 8 -> i // 2
(i * 4 + j) % 8 -> i % 2 * 4 + j
(x * 8 + i) // 8 -> x
(x * 8 + 7) // 8 -> x
(x * 8 + 8) // 8 -> x + 1
(x * 16 + i) // 8 -> x * 2
(x * 16 + k) % 16 -> k
(x + 4) // 4 -> x // 4 + 1
(x + 4) % 4 -> x % 4
(x - 1) % 4 -> (x + 3) % 4
x // 4 * 4 + x % 4 -> x
x // 4 * 8 + x % 4 * 2 -> x * 2
x - x // 4 * 4 -> x % 4
x - x % 4 -> x // 4 * 4
x // 32 * 32 + x % 32 // 4 * 4 + x % 4 -> x
x // 32 * 8 + x % 32 // 4 -> x // 4
k // 4 * 4 + k % 4 -> k
(k // 4 * 4 + k % 4) // 4 -> k // 4
x // 4 % 8 -> x % 32 // 4
x % 32 // 4 -> x % 32 // 4
x % 32 // 32 -> 0
x % 8 // 8 -> 0
(x * 4) // 6 -> x * 4 // 6
(x * 16 + 16) // 12 -> (x * 16 + 16) // 12
(x * 16 + 16) % 12 -> (x * 4 + 4) % 12
(x * 8 + 8) // 16 -> (x * 8 + 8) // 16
(x * 8 + 3) // 16 -> x // 2
(x - 1) // 3 + 1 -> (x - 1) // 3 + 1
x * (n * 2) -> x * (n * 2)
x * (n * 2) + 1 -> x * (n * 2) + 1
x * (n * 2) - x * n * 2 -> 0
x * (n * 2) // 2 -> x * n
x * (n * 2) + x * n -> x * n * 3
(x + 7) // 3 -> (x + 7) // 3
(x + 6) // 3 -> x // 3 + 2
(n * 4 + j) // 4 -> n
(n * 4 + j) % 4 -> j
(x * n + t) // n -> x
(x * n + t) % n -> t
t // n -> 0
t % n -> t
x % x -> 0
(x * n) % n -> 0
(n + 3) // 4 * 4 -> (n + 3) // 4 * 4
truncdiv(i, 8) -> 0
truncmod(i, 8) -> i
truncdiv(i * 4 + j, 4) -> i
truncdiv(truncdiv(x, 4), 2) -> truncdiv(x, 8)
truncdiv(x * 8, 4) -> x * 2
truncmod(x * 8, 4) -> 0
truncdiv(x, 1) -> x
truncdiv(x, 4) -> truncdiv(x, 4)
x // (-1) -> 0 - x
x // 0 -> 0
x % 0 -> x
"""

SPLIT_AND_FUSE = """
(i * 4 + j) // 4 * 4 + (i * 4 + j) % 4 -> i * 4 + j
((x * 8 + i) * 4 + j) // 32 -> x
((x * 8 + i) * 4 + j) % 32 // 4 -> i
((x * 8 + i) * 4 + j) % 4 -> j
((x * 8 + i) * 4 + j) // 4 % 8 -> i
(x * 32 + i * 4 + j) // 4 -> x * 8 + i
(x * 32 + i * 4 + j) // 16 -> x * 2 + i // 4
(x * 32 + i * 4 + j) % 16 -> i % 4 * 4 + j
(x * 224 + y) // 224 * 224 + (x * 224 + y) % 224 -> x * 224 + y
x // 12544 * 12544 + x % 12544 // 112 * 112 + x % 112 -> x
x // 4 // 8 -> x // 32
x % 64 % 16 -> x % 16
x % 64 // 16 * 16 + x % 16 -> x % 64
(x % 64 + 64) % 64 -> x % 64
(i + x * 8) // 8 * 8 + i % 8 -> x * 8 + i
(n * 32 + i * 4 + j) // 32 -> n
(n * 32 + i * 4 + j) % 32 -> i * 4 + j
(n * m * 4 + j) // 4 -> n * m
(i * 4 + j) // 2 -> i * 2 + j // 2
"""

BOUNDS = """
i < 8 -> True
i < 7 -> i < 7
0 <= i -> True
i >= 0 -> True
i < 0 -> False
i * 4 + j < 32 -> True
i * 4 + j < 31 -> i * 4 + j < 31
i * 4 + j < 16 -> i < 4
i * 4 + j <= 15 -> i <= 3
i * 4 + j >= 16 -> 4 <= i
i != 8 -> True
i == 9 -> False
x - 1 < x -> True
x < x + 1 -> True
x <= x -> True
x < x -> False
x + 1 <= x -> False
x * 2 == x * 2 + 1 -> False
x * 4 + 2 == y * 8 -> False
t < n -> True
t + 1 <= n -> True
t >= 0 -> True
(n + 3) // 4 * 4 >= n -> True
(n + 127) // 128 * 128 - n >= 0 -> True
n // 4 * 4 <= n -> True
n // 4 * 4 < n + 1 -> True
min(n, 128) <= n -> True
max(n, 1) > 0 -> True
min(n, 128) <= 128 -> True
n - min(n, 128) >= 0 -> True
n % 8 < 8 -> True
n >= 0 -> True
n < 0 -> False
x * 4 + j < y * 4 -> x < y
"""

COMPARISONS = """
x > 1 -> 1 < x
x >= 1 -> 1 <= x
x + 1 < 5 -> x < 4
x - 1 < 5 -> x < 6
1 < x + 3 -> -2 < x
5 - x < 3 -> 2 < x
x + y < x + z -> y < z
x - y < x - z -> z < y
y + x < z + x -> y < z
x * 4 < 16 -> x < 4
x * 4 < 17 -> x < 5
16 < x * 4 -> 4 < x
x * 4 <= 16 -> x <= 4
x * 3 < y * 3 -> x < y
x * (-2) < 4 -> -2 < x
x // 4 < 2 -> x < 8
1 < x // 4 -> 7 < x
x < y + 1 -> x <= y
x - 1 < y -> x <= y
x + 1 == 3 -> x == 2
3 == x -> x == 3
3 - x == 1 -> x == 2
x * 4 == 8 -> x == 2
x * 4 == 9 -> False
x - y == 0 -> x == y
x == x -> True
x != x -> False
x + y == x -> y == 0
min(x, y) < z -> x < z or y < z
z < min(x, y) -> z < x and z < y
x // 4 * 4 < x -> 0 < x % 4
not (x < y) -> y <= x
not (x <= y) -> y < x
not (x == y) -> x != y
not (not p) -> p
p == True -> p
p == False -> not p
f == f -> f == f
f < f -> f < f
f > 1.0 -> 1.0 < f
not (f < 1.0) -> not (f < 1.0)
"""

MINIMA = """
min(x, x) -> x
max(i, 0) -> i
min(i, 7) -> i
min(i, 8) -> i
max(i, 7) -> 7
min(3, x) -> min(3, x)
min(min(x, 3), 5) -> min(x, 3)
min(max(x, 5), 3) -> 3
min(x, min(x, y)) -> min(x, y)
min(max(x, y), x) -> x
min(x, y) + max(x, y) -> x + y
min(x, x + 1) -> x
max(x, x + 1) -> x + 1
min(x + 1, x + 3) -> x + 1
min(x + y, x + z) -> min(y, z) + x
min(x * 4, y * 4) -> min(x, y) * 4
min(x, y) - x -> min(0, y - x)
min(x // 4 * 4, x) -> x // 4 * 4
min((x + 3) // 4 * 4, x) -> x
max((n + 3) // 4 * 4, n) -> (n + 3) // 4 * 4
min(t, n) -> t
min(t, n - 1) -> t
max(t, 0) -> t
min(x * 4 + 4, 16) - x * 4 -> 16 - max(x, 3) * 4
min(n, 8) - min(n, 8) -> 0
"""

LOGIC = """
p and p -> p
p and True -> p
p and False -> False
p or True -> True
p or False -> p
p and not p -> False
p or not p -> True
x < 5 and x < 3 -> x < 3
x < 5 and 7 < x -> False
x == 1 and x == 2 -> False
x < 5 or 3 < x -> True
x < y and y < x -> False
x < y or y <= x -> True
i < 8 and x < 3 -> x < 3
x < 3 and i < 8 -> x < 3
likely(i < 8) -> True
likely(x < 3) -> likely(x < 3)
not (p and q) -> not p or not q
(p or q) and p -> p
1 <= i + 1 and i < 3 -> i < 3
"""

CHOICES = """
select(True, x, y) -> x
select(p, x, x) -> x
select(i < 8, x, y) -> x
select(not p, x, y) -> select(p, y, x)
select(x < 3, min(x, 5), y) -> select(x < 3, x, y)
select(p, x, y) -> select(p, x, y)
if_then_else(i < 8, x, y) -> x
if_then_else(i == 9, x, y) -> y
if_then_else(p, x, x) -> x
if_then_else(x < 3, max(x, 3), y) -> if_then_else(x < 3, 3, y)
if_then_else(x == 3, x + 1, y) -> if_then_else(x == 3, x + 1, y)
if_then_else(not p, x, y) -> if_then_else(p, y, x)
"""

VECTORS = """
ramp(x, 1, 4) + broadcast(y, 4) -> ramp(x + y, 1, 4)
ramp(x, 1, 4) + ramp(y, 2, 4) -> ramp(x + y, 3, 4)
ramp(x, 2, 4) - ramp(x, 1, 4) -> ramp(0, 1, 4)
ramp(x, 1, 4) - ramp(y, 1, 4) -> broadcast(x - y, 4)
ramp(x, 2, 4) * broadcast(3, 4) -> ramp(x * 3, 6, 4)
broadcast(x, 4) + broadcast(y, 4) -> broadcast(x + y, 4)
broadcast(x, 4) < broadcast(y, 4) -> broadcast(x < y, 4)
ramp(x * 4, 4, 4) // broadcast(4, 4) -> ramp(x, 1, 4)
ramp(x * 4, 1, 4) // broadcast(4, 4) -> broadcast(x, 4)
ramp(x * 4, 1, 4) % broadcast(4, 4) -> ramp(0, 1, 4)
ramp(i * 4, 1, 4) < broadcast(y, 4) -> ramp(i * 4, 1, 4) < broadcast(y, 4)
ramp(x, 0, 4) -> broadcast(x, 4)
ramp(i * 4, 1, 4) < broadcast(32, 4) -> broadcast(True, 4)
"""

CASTS = """
int64(int64(x)) -> int64(x)
int32(int64(x)) -> x
int64(i * 4 + j) -> int64(i) * 4 + int64(j)
int64(i) * 4 + int64(i) -> int64(i) * 5
int64(i * 4 + j) // 4 -> int64(i)
int32(w) -> int32(w)
int32(w + 1) -> int32(w + 1)
int64(int32(w)) -> int64(int32(w))
shift_left(x, 3) -> shift_left(x, 3)
shift_left(i, 3) -> i * 8
shift_left(i, 28) -> i * 268435456
shift_left(i, 29) -> shift_left(i, 29)
shift_right(shift_left(x, 28), 28) -> shift_left(x, 28) // 268435456
shift_right(x, 2) -> x // 4
shift_right(i * 4 + j, 2) -> i
shift_left(x, 40) -> shift_left(x, 40)
bitwise_and(i, 7) -> i
bitwise_and(x, 0) -> 0
bitwise_and(x, 7) -> bitwise_and(x, 7)
"""

WRAPPING = """
u - u -> 0
u + 1 - 1 -> u
u + 200 + 100 -> u + 44
u < u + 1 -> u < u + 1
u * 2 // 2 -> u * 2 // 2
a8 + b8 - b8 -> a8
a8 + 1 > a8 -> a8 < a8 + 1
a8 * 4 // 4 -> a8 * 4 // 4
u >= 0 -> True
u % 16 < 16 -> True
u % 16 + v % 16 < 31 -> True
min(u, v) - u -> min(u, v) - u
u + v < u -> u + v < u
u // u -> u // u
"""

FLOATS = """
f * 1.0 -> f
f + 0.0 -> f + 0.0
f * 0.0 -> f * 0.0
f - f -> f - f
min(f, f) -> f
"""

EFFECTS = """
impure(x) - impure(x) -> impure(x) - impure(x)
impure(x) * 0 -> impure(x) * 0
impure(x + 0) + 1 -> impure(x) + 1
impure(x) // 4 * 4 + impure(x) % 4 -> impure(x) // 4 * 4 + impure(x) % 4
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("text", lines(SUMS + DIVISION + SPLIT_AND_FUSE + BOUNDS + COMPARISONS))
def test_arithmetic(text: str) -> None:
    check(text, analyzer().simplify)


@pytest.mark.parametrize("text", lines(MINIMA + LOGIC + CHOICES + VECTORS))
def test_structure(text: str) -> None:
    check(text, analyzer().simplify)


@pytest.mark.parametrize("text", lines(CASTS + WRAPPING + FLOATS + EFFECTS))
def test_dtypes_and_effects(text: str) -> None:
    if text.startswith(("u", "a8", "min(u")):
        before, _, after = text.partition(" -> ")
        expected = build(after, NAMES) if not after.isdigit() else e.IntImm(build(before, NAMES).dtype, int(after))
        result = analyzer().simplify(build(before, NAMES))
        assert structural_equal(result, expected), f"{before}\nexpected {show(expected)}\nfound    {show(result)}"
    else:
        check(text, analyzer().simplify)
