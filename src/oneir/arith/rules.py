"""The algebra of the simplifier: identities between integer expressions, one a line, read by `pattern.py`.

`RING` and `LATTICE` hold for every integer dtype, also where arithmetic wraps; `INDEX` needs arithmetic that does not
overflow, which is assumed of int32 and int64. Division is what the language defines: x // 0 is 0 and x % 0 is x. An
order of operands that is not listed is a variant of one that is.
"""

from __future__ import annotations

RING = """
# sums
x + 0 -> x
x + x -> x * 2
(x + c1) + c2 -> x + (c1 + c2)
(c1 - x) + c2 -> (c1 + c2) - x
(x + c1) + y -> (x + y) + c1
(x - y) + y -> x
(x - y) + (y - x) -> 0
(x - y) + (y - z) -> x - z
(x - y) + (z - x) -> z - y
(0 - x) + y -> y - x
x * y + x -> x * (y + 1) where varies(x)
x * c1 + x -> x * (c1 + 1)
x * y + x * z -> x * (y + z)
x * c1 + x * c2 -> x * (c1 + c2)
(x // y) * y + x % y -> x

# differences
x - x -> 0
(x + y) - y -> x
x - (x + y) -> 0 - y
(x + y) - (x + z) -> y - z
(x - y) - x -> 0 - y
x - (x - y) -> y
(x - y) - (x - z) -> z - y
(x - y) - (z - y) -> x - z
(x + y) - (x - z) -> y + z
(x + c1) - y -> (x - y) + c1
x - (y + c1) -> (x - y) + (0 - c1)
c1 - (c2 - x) -> x + (c1 - c2)
c1 - (x + c2) -> (c1 - c2) - x
x - (0 - y) -> x + y
x - (y - z) -> (x + z) - y
x * y - x -> x * (y - 1)
x * c1 - x -> x * (c1 - 1)
x - x * y -> x * (1 - y)
x - x * c1 -> x * (1 - c1)
x * y - x * z -> x * (y - z)
x * c1 - x * c2 -> x * (c1 - c2)
x - y * c1 -> x + y * (0 - c1) where c1 < 0
x - (x // y) * y -> x % y
(x // y) * y - x -> 0 - x % y

# products
x * 0 -> 0
x * 1 -> x
(x * c1) * c2 -> x * (c1 * c2)
(x + c1) * c2 -> x * c2 + c1 * c2
(c1 - x) * c2 -> c1 * c2 - x * c2
(x - y) * c1 -> (y - x) * (0 - c1) where c1 < 0
min(x, y) * max(x, y) -> x * y
min(x, y) + max(x, y) -> x + y

# equality
x == x -> True
x + c1 == c2 -> x == c2 - c1
c1 - x == c2 -> x == c1 - c2
x + y == x -> y == 0
x + y == x + z -> y == z
x - y == x - z -> y == z
y - x == z - x -> y == z
x - y == 0 -> x == y
"""

LATTICE = """
x // c1 -> lo(x) // c1 where c1 > 0 and lo(x) // c1 == hi(x) // c1
x % c1 -> x where c1 > 0 and lo(x) >= 0 and hi(x) < c1
x // 1 -> x
x % 1 -> 0
x // 0 -> 0
x % 0 -> x
x % c1 -> remainder(x, c1) where c1 > 0 and divisible(x, c1)
(x % c1) % c2 -> x % c2 where c1 > 0 and c2 > 0 and c1 % c2 == 0
x // x -> 1 where nonzero(x)
x % x -> 0

min(x, x) -> x
max(x, x) -> x
min(x, y) -> x where hi(x) <= lo(y)
min(x, y) -> y where hi(y) <= lo(x)
max(x, y) -> x where lo(x) >= hi(y)
max(x, y) -> y where lo(y) >= hi(x)
min(min(x, y), y) -> min(x, y)
max(max(x, y), y) -> max(x, y)
min(max(x, y), y) -> y
max(min(x, y), y) -> y
min(min(x, c1), c2) -> min(x, min(c1, c2))
max(max(x, c1), c2) -> max(x, max(c1, c2))
min(max(x, c1), c2) -> c2 where c1 >= c2
max(min(x, c1), c2) -> c2 where c1 <= c2
min(max(x, y), min(x, y)) -> min(x, y)
max(max(x, y), min(x, y)) -> max(x, y)
min(min(x, y), min(x, z)) -> min(min(y, z), x)
max(max(x, y), max(x, z)) -> max(max(y, z), x)
min(max(x, y), max(x, z)) -> max(min(y, z), x)
max(min(x, y), min(x, z)) -> min(max(y, z), x)
min(min(x, c1), y) -> min(min(x, y), c1)
max(max(x, c1), y) -> max(max(x, y), c1)

x < x -> False
min(x, y) < z -> x < z or y < z
max(x, y) < z -> x < z and y < z
z < min(x, y) -> z < x and z < y
z < max(x, y) -> z < x or z < y
"""

INDEX = """
# sums and differences of minima and maxima
min(x, y - z) + z -> min(x + z, y)
max(x, y - z) + z -> max(x + z, y)
min(x, y) - x -> min(y - x, 0)
max(x, y) - x -> max(y - x, 0)
x - min(x, y) -> max(x - y, 0)
x - max(x, y) -> min(x - y, 0)
min(x + y, z) - x -> min(z - x, y)
max(x + y, z) - x -> max(z - x, y)
x // 2 + x % 2 -> (x + 1) // 2
(x + c1) // c3 - (x + c2) // c3 -> ((x + c2) % c3 + (c1 - c2)) // c3 where c3 > 0
(x + c1) // c3 - x // c3 -> (x % c3 + c1) // c3 where c3 > 0
x // c3 - (x + c2) // c3 -> ((x + c2) % c3 - c2) // c3 where c3 > 0

# floordiv
(x // c1) // c2 -> x // (c1 * c2) where c1 > 0 and c2 > 0
(x // c1 + c2) // c3 -> (x + c1 * c2) // (c1 * c3) where c1 > 0 and c3 > 0
(x * c1) // c2 -> x * (c1 // c2) where c2 > 0 and c1 % c2 == 0
(x * c1) // c2 -> x // (c2 // c1) where c1 > 0 and c2 > 0 and c2 % c1 == 0
(x * y) // x -> y where nonzero(x)
(x * c1) // x -> c1 where nonzero(x)
(x * c1) // (y * c1) -> x // y where c1 != 0
(x * z) // (y * z) -> x // y where nonzero(z)
(x * c1 + y) // c2 -> x * (c1 // c2) + y // c2 where c2 > 0 and c1 % c2 == 0
(x * c1 - y) // c2 -> x * (c1 // c2) + (0 - y) // c2 where c2 > 0 and c1 % c2 == 0
(y - x * c1) // c2 -> y // c2 - x * (c1 // c2) where c2 > 0 and c1 % c2 == 0
(x * c1 + y) // c2 -> x // (c2 // c1) + lo(y) // c2 where c1 > 0 < c2 and c2 % c1 == 0 and hi(y) - lo(y) // c2 * c2 < c1
(x + c1) // c2 -> x // c2 + c1 // c2 where c2 > 0 and c1 % c2 == 0
(x + y) // x -> y // x + 1 where nonzero(x)
(x - y) // x -> (0 - y) // x + 1 where nonzero(x)
(x * y + z) // y -> x + z // y where nonzero(y)
(x * y + z) // y -> x where lo(z) >= 0 and less(z, y)
(z - x * y) // y -> z // y - x where nonzero(y)
x // y -> 0 where lo(x) >= 0 and less(x, y)
x // -1 -> 0 - x

# floormod
(x * c1) % c2 -> 0 where c2 > 0 and c1 % c2 == 0
(x * c1) % c2 -> (x % (c2 // c1)) * c1 where c1 > 0 and c2 > 0 and c2 % c1 == 0
(x * c1 + y) % c2 -> y % c2 where c2 > 0 and c1 % c2 == 0
(y - x * c1) % c2 -> y % c2 where c2 > 0 and c1 % c2 == 0
(x * c1 + y) % c2 -> (x % (c2 // c1)) * c1 + y where c1 > 0 and c2 > 0 and c2 % c1 == 0 and lo(y) >= 0 and hi(y) < c1
(x * c1) % c2 -> (x * (c1 % c2)) % c2 where c2 > 0 and c1 % c2 != c1
(x * c1 + y) % c2 -> (x * (c1 % c2) + y) % c2 where c2 > 0 and c1 % c2 != c1
(x + c1) % c2 -> (x + c1 % c2) % c2 where c2 > 0 and c1 % c2 != c1
(x % c1 + y) % c2 -> (x + y) % c2 where c1 > 0 and c2 > 0 and c1 % c2 == 0
(x * y) % y -> 0
(x * y + z) % y -> z % y
(x + y) % x -> y % x
(x - y) % x -> (0 - y) % x
(x * z) % (y * z) -> (x % y) * z
(x * c1) % (y * c1) -> (x % y) * c1
x % y -> x where lo(x) >= 0 and less(x, y)

# minima and maxima
min(x + y, x + z) -> min(y, z) + x
max(x + y, x + z) -> max(y, z) + x
min(x - y, x - z) -> x - max(y, z)
max(x - y, x - z) -> x - min(y, z)
min(y - x, z - x) -> min(y, z) - x
max(y - x, z - x) -> max(y, z) - x
min(x + c1, x + c2) -> x + min(c1, c2)
max(x + c1, x + c2) -> x + max(c1, c2)
min(c1 - x, c2 - x) -> min(c1, c2) - x
max(c1 - x, c2 - x) -> max(c1, c2) - x
min(x + c1, x) -> x + min(c1, 0)
max(x + c1, x) -> x + max(c1, 0)
min(x + y, x) -> x + min(y, 0)
max(x + y, x) -> x + max(y, 0)
min(c1 - x, c2) -> c1 - max(x, c1 - c2) where c2 != 0
max(c1 - x, c2) -> c1 - min(x, c1 - c2) where c2 != 0
min(x * c1, y * c1) -> min(x, y) * c1 where c1 > 0
max(x * c1, y * c1) -> max(x, y) * c1 where c1 > 0
min(x * c1, y * c1) -> max(x, y) * c1 where c1 < 0
max(x * c1, y * c1) -> min(x, y) * c1 where c1 < 0
min(x * c1, c2) -> min(x, c2 // c1) * c1 where c1 > 0 and c2 % c1 == 0
max(x * c1, c2) -> max(x, c2 // c1) * c1 where c1 > 0 and c2 % c1 == 0
min(x * c1, c2) -> max(x, c2 // c1) * c1 where c1 < 0 and c2 % c1 == 0
max(x * c1, c2) -> min(x, c2 // c1) * c1 where c1 < 0 and c2 % c1 == 0
min(x // c1, y // c1) -> min(x, y) // c1 where c1 > 0
max(x // c1, y // c1) -> max(x, y) // c1 where c1 > 0
min((x // c1) * c1, x) -> (x // c1) * c1 where c1 > 0
max((x // c1) * c1, x) -> x where c1 > 0
min(((x + c1) // c2) * c2, x) -> x where c2 > 0 and c1 + 1 == c2
max(((x + c1) // c2) * c2, x) -> ((x + c1) // c2) * c2 where c2 > 0 and c1 + 1 == c2
min(((x + c1) // c2) * c2, max(x, c2)) -> max(x, c2) where c2 > 0 and c1 + 1 == c2 and lo(x) > 0
min(x, y) -> x where less_equal(x, y)
min(x, y) -> y where less_equal(y, x)
max(x, y) -> y where less_equal(x, y)
max(x, y) -> x where less_equal(y, x)

# equality
x * c1 == c2 -> x == c2 // c1 where c1 != 0 and c2 % c1 == 0
x * c1 == c2 -> False where c1 != 0 and c2 % c1 != 0
x * c1 == y * c1 -> x == y where c1 != 0
x * y == 0 -> x == 0 or y == 0

# order
x + y < x + z -> y < z
y - x < z - x -> y < z
x - y < x - z -> z < y
x < x + z -> 0 < z
x + z < x -> z < 0
x < x - z -> z < 0
x - z < x -> 0 < z
x + c1 < y + c2 -> x < y + (c2 - c1)
c1 < x + c2 -> c1 - c2 < x
x + c1 < c2 -> x < c2 - c1
c1 < c2 - x -> x < c2 - c1
c1 - x < c2 -> c1 - c2 < x
0 < x - y -> y < x
x - y < 0 -> x < y
x * c1 < y * c1 -> x < y where c1 > 0
x * c1 < y * c1 -> y < x where c1 < 0
x * c2 < c1 -> x < (c1 - 1) // c2 + 1 where c2 > 0
x * c2 < c1 -> c1 // c2 < x where c2 < 0
c1 < x * c2 -> c1 // c2 < x where c2 > 0
c1 < x * c2 -> x < 0 - (0 - c1) // c2 where c2 < 0
x // c1 < c2 -> x < c1 * c2 where c1 > 0
c1 < x // c2 -> (c1 + 1) * c2 - 1 < x where c2 > 0
(x // c1) * c1 < x -> 0 < x % c1 where c1 > 0
(x // c1) * c1 < x + y -> 0 < x % c1 + y where c1 > 0
(x // c1) * c1 < x - y -> y < x % c1 where c1 > 0
((x + c2) // c1) * c1 < x -> c2 < (x + c2) % c1 where c1 > 0
((x + c2) // c1) * c1 < x + y -> c2 < (x + c2) % c1 + y where c1 > 0
((x + c2) // c1) * c1 < x - y -> y + c2 < (x + c2) % c1 where c1 > 0
x < c1 - y -> x + y < c1
x < y + 1 -> x <= y
x - 1 < y -> x <= y
c1 - y < x -> c1 < x + y
"""

LOGIC = """
x and x -> x
x and not x -> False
x == y and x != y -> False
x <= y and y < x -> False
x < y and y < x -> False
x < c1 and c2 < x -> False where c2 + 1 >= c1
x < c1 and c2 <= x -> False where c2 >= c1
x <= c1 and c2 < x -> False where c2 >= c1
x <= c1 and c2 <= x -> False where c2 > c1
x == c1 and x == c2 -> False where c1 != c2
x == c1 and x != c2 -> x == c1 where c1 != c2
x == c1 and x < c2 -> x == c1 where c1 < c2
x == c1 and x < c2 -> False where c1 >= c2
x == c1 and x <= c2 -> x == c1 where c1 <= c2
x == c1 and x <= c2 -> False where c1 > c2
x == c1 and c2 < x -> x == c1 where c2 < c1
x == c1 and c2 < x -> False where c2 >= c1
x == c1 and c2 <= x -> x == c1 where c2 <= c1
x == c1 and c2 <= x -> False where c2 > c1
x < c1 and x < c2 -> x < min(c1, c2)
x <= c1 and x <= c2 -> x <= min(c1, c2)
x <= c1 and x < c2 -> x <= c1 where c1 < c2
x <= c1 and x < c2 -> x < c2 where c1 >= c2
c1 < x and c2 < x -> max(c1, c2) < x
c1 <= x and c2 <= x -> max(c1, c2) <= x
c1 <= x and c2 < x -> c1 <= x where c1 > c2
c1 <= x and c2 < x -> c2 < x where c1 <= c2
(x and y) and y -> x and y
(x or y) and x -> x
x < y and x <= y -> x < y
x == y and x <= y -> x == y

x or x -> x
x or not x -> True
x == y or x != y -> True
x <= y or y < x -> True where whole(x)
x < y or y < x -> x != y where whole(x)
x < y or x == y -> x <= y
x < c1 or c2 < x -> True where c2 < c1
x < c1 or c2 <= x -> True where c2 <= c1
x <= c1 or c2 < x -> True where c2 <= c1
x <= c1 or c2 <= x -> True where c2 <= c1 + 1
x != c1 or x != c2 -> True where c1 != c2
x != c1 or x == c2 -> x != c1 where c1 != c2
x < c1 or x < c2 -> x < max(c1, c2)
x <= c1 or x <= c2 -> x <= max(c1, c2)
c1 < x or c2 < x -> min(c1, c2) < x
c1 <= x or c2 <= x -> min(c1, c2) <= x
(x or y) or y -> x or y
(x and y) or x -> x
x < y or x <= y -> x <= y
x == y or x <= y -> x <= y
"""

NEGATION = """
not (not x) -> x
not (x and y) -> not x or not y
not (x or y) -> not x and not y
"""

CHOICE = """
select(x, y, y) -> y
select(not x, y, z) -> select(x, z, y)
"""
