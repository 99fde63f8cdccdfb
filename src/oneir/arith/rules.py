"""The algebra of the simplifier: identities between integer expressions, one a line, read by `pattern.py`.

`RING` and `LATTICE` hold for every integer dtype, also where arithmetic wraps; `INDEX` needs arithmetic that does not
overflow, which is assumed of int32 and int64. Division is what the language defines: x // 0 is 0 and x % 0 is x. An
order of operands that is not listed is a variant of one that is. The orders and forms that come out are those that TVM
publishes.
"""

from __future__ import annotations

RING = """
# sums
x + 0 -> x
x + x -> x * 2
(x + c1) + c2 -> x + (c1 + c2)
(c1 - x) + c2 -> (c1 + c2) - x
(x + c1) + y => (x + y) + c1
x + (y + c1) => (x + y) + c1
(c1 - x) + y => (y - x) + c1 where c1 != 0
x + (c1 - y) => (x - y) + c1 where c1 != 0
(x - y) + y -> x
(x - y) + (y - x) -> 0
(x - y) + (y - z) -> x - z
(x - y) + (z - x) -> z - y
(0 - x) + y -> y - x
x * y + x -> (y + 1) * x where varies(x)
x * c1 + x -> x * (c1 + 1)
x * y + x * z -> (y + z) * x
x * c1 + x * c2 -> x * (c1 + c2)
(x // y) * y + x % y -> x
truncdiv(x, c1) * c1 + truncmod(x, c1) -> x
x % c1 + y * c1 => y * c1 + x % c1
truncmod(x, c1) + y * c1 => y * c1 + truncmod(x, c1)
select(x, y, z) + select(x, v, w) -> select(x, y + v, z + w)

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
(c1 - x) - (c2 - y) -> (y - x) + (c1 - c2) where c1 != 0 and c2 != 0
(x + c1) - y -> (x - y) + c1
x - (y + c1) -> (x - y) + (0 - c1)
c1 - (c2 - x) -> x + (c1 - c2)
c1 - (x + c2) -> (c1 - c2) - x
x - (0 - y) -> x + y
x - (y - z) -> (x + z) - y
x * y - x -> (y - 1) * x
x * c1 - x -> x * (c1 - 1)
x - x * y -> (1 - y) * x
x - x * c1 -> x * (1 - c1)
x * y - x * z -> (y - z) * x
x * c1 - x * c2 -> x * (c1 - c2)
x - (x // y) * y -> x % y
(x // y) * y - x -> 0 - x % y
x - truncdiv(x, c1) * c1 -> truncmod(x, c1)
truncdiv(x, c1) * c1 - x -> 0 - truncmod(x, c1)
min(x, y) - min(x, y) -> 0
max(x, y) - max(x, y) -> 0
select(x, y, z) - select(x, v, w) -> select(x, y - v, z - w)
select(x, y, z) - z -> select(x, y - z, 0)
select(x, y, z) - y -> select(x, 0, z - y)

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
min(min(min(x, y), z), y) -> min(min(x, y), z)
max(max(max(x, y), z), y) -> max(max(x, y), z)
min(select(x, y, z), select(x, v, w)) -> select(x, min(y, v), min(z, w))
max(select(x, y, z), select(x, v, w)) -> select(x, max(y, v), max(z, w))

x < x -> False
min(x, y) < z -> x < z or y < z
max(x, y) < z -> x < z and y < z
z < min(x, y) -> z < x and z < y
z < max(x, y) -> z < x or z < y
"""

INDEX = """
# sums and differences of minima and maxima
x + min(y, z) => min(y, z) + x where not extremum(x)
x + max(y, z) => max(y, z) + x where not extremum(x)
min(x - z, y) + z => min(x, y + z)
max(x - z, y) + z => max(x, y + z)
min(x, y - z) + z -> min(x + z, y)
max(x, y - z) + z -> max(x + z, y)
min(x + c1, y) + c2 => min(x, y + c2) where c1 + c2 == 0
max(x + c1, y) + c2 => max(x, y + c2) where c1 + c2 == 0
min(x, y + c1) + c2 => min(x + c2, y) where c1 + c2 == 0
max(x, y + c1) + c2 => max(x + c2, y) where c1 + c2 == 0
min(x, y + z * c1) + z * c2 -> min(x + z * c2, y) where c1 + c2 == 0
max(x, y + z * c1) + z * c2 -> max(x + z * c2, y) where c1 + c2 == 0
min(x, y) - x => min(0, y - x)
max(x, y) - x => max(0, y - x)
min(x, y) - y => min(x - y, 0)
max(x, y) - y => max(x - y, 0)
x - max(x, y) => min(0, x - y)
x - min(x, y) => max(0, x - y)
x - max(y, x) => min(x - y, 0)
x - min(y, x) => max(x - y, 0)
min(x + y, z) - x => min(y, z - x)
min(y + x, z) - x => min(y, z - x)
min(z, x + y) - x => min(z - x, y)
min(z, y + x) - x => min(z - x, y)
max(x + y, z) - x => max(y, z - x)
max(y + x, z) - x => max(y, z - x)
max(z, x + y) - x => max(z - x, y)
max(z, y + x) - x => max(z - x, y)
x - min(x + y, z) => max(0 - y, x - z)
x - min(y + x, z) => max(0 - y, x - z)
x - min(z, x + y) => max(x - z, 0 - y)
x - min(z, y + x) => max(x - z, 0 - y)
x - max(x + y, z) => min(0 - y, x - z)
x - max(y + x, z) => min(0 - y, x - z)
x - max(z, x + y) => min(x - z, 0 - y)
x - max(z, y + x) => min(x - z, 0 - y)
min(x, y) - min(z, w) => x - z where equal(x - z, y - w)
max(x, y) - max(z, w) => x - z where equal(x - z, y - w)
min(x, y) - min(w, z) => x - z where equal(x - z, y - w)
max(x, y) - max(w, z) => x - z where equal(x - z, y - w)
x - truncdiv(x + y, c1) * c1 -> truncmod(x + y, c1) - y
truncdiv(x + y, c1) * c1 - x -> y - truncmod(x + y, c1)
x - truncdiv(x - y, c1) * c1 -> truncmod(x - y, c1) + y
truncdiv(x - y, c1) * c1 - x -> (0 - truncmod(x - y, c1)) - y
x * c2 - truncdiv(x, c1) * c3 -> truncmod(x, c1) * c2 where c3 == c1 * c2
truncdiv(x, c1) * c3 - x * c2 -> truncmod(x, c1) * (0 - c2) where c3 == c1 * c2
x * c2 - truncdiv(x + y, c1) * c3 -> (truncmod(x + y, c1) - y) * c2 where c3 == c1 * c2
truncdiv(x + y, c1) * c3 - x * c2 -> (y - truncmod(x + y, c1)) * c2 where c3 == c1 * c2
x * c2 - truncdiv(x - y, c1) * c3 -> (truncmod(x - y, c1) + y) * c2 where c3 == c1 * c2
truncdiv(x - y, c1) * c3 - x * c2 -> ((0 - truncmod(x - y, c1)) - y) * c2 where c3 == c1 * c2
truncdiv(x + c1, c3) - truncdiv(x + c2, c3) -> truncdiv(truncmod(x + c2, c3) + (c1 - c2), c3)
    where c3 > 0 and c1 >= c2 and lo(x) + c2 >= 0
truncdiv(x + c1, c3) - truncdiv(x, c3) -> truncdiv(truncmod(x, c3) + c1, c3) where c3 > 0 and c1 >= 0 and lo(x) >= 0
x - ((x + y) // c1) * c1 -> (x + y) % c1 - y
((x + y) // c1) * c1 - x -> y - (x + y) % c1
x - ((x - y) // c1) * c1 -> (x - y) % c1 + y
((x - y) // c1) * c1 - x -> (0 - (x - y) % c1) - y
x * c2 - (x // c1) * c3 -> (x % c1) * c2 where c3 == c1 * c2
(x // c1) * c3 - x * c2 -> (x % c1) * (0 - c2) where c3 == c1 * c2
x * c2 - ((x + y) // c1) * c3 -> ((x + y) % c1 - y) * c2 where c3 == c1 * c2
((x + y) // c1) * c3 - x * c2 -> (y - (x + y) % c1) * c2 where c3 == c1 * c2
x * c2 - ((x - y) // c1) * c3 -> ((x - y) % c1 + y) * c2 where c3 == c1 * c2
((x - y) // c1) * c3 - x * c2 -> ((0 - (x - y) % c1) - y) * c2 where c3 == c1 * c2
x // 2 + x % 2 -> (x + 1) // 2
(x + 1) // 2 - x % 2 -> x // 2
(x + c1) % 2 + x % 2 -> 1 where c1 % 2 == 1
(x % c2 + c1) // c2 + x // c2 -> (x + c1) // c2 where c2 > 0
(x + c1) // 2 - (x + c2) // 2 -> (x % 2) * (c1 % 2 - c2 % 2) + (c1 // 2 - c2 // 2)
x // 2 - (x + c2) // 2 -> (x % 2) * (0 - c2 % 2) - c2 // 2
(x + c1) // 2 - x // 2 -> (x % 2) * (c1 % 2) + c1 // 2
(x + c1) // c3 - (x + c2) // c3 -> ((x + c2) % c3 + (c1 - c2)) // c3 where c3 > 0
(x + c1) // c3 - x // c3 -> (x % c3 + c1) // c3 where c3 > 0
x // c3 - (x + c2) // c3 -> ((x + c2) % c3 - c2) // c3 where c3 > 0
((x - x % c1) // c2) * c2 -> x - x % c1 where c2 == c1 or c2 == 0 - c1

# truncdiv and truncmod
truncdiv(truncdiv(x, c1), c2) -> truncdiv(x, c1 * c2) where c1 > 0 and c2 > 0
truncdiv(truncdiv(x, c1) + c2, c3) -> truncdiv(x + c1 * c2, c1 * c3) where c1 > 0 and c2 >= 0 and c3 > 0 and lo(x) >= 0
truncdiv(x * c1, c2) -> x * (c1 // c2) where c1 > 0 and c2 > 0 and c1 % c2 == 0
truncdiv(x * c1, c2) -> truncdiv(x, c2 // c1) where c1 > 0 and c2 > 0 and c2 % c1 == 0
truncdiv(x, x) -> 1 where nonzero(x)
truncdiv(x * c1, x) -> c1 where nonzero(x)
truncdiv(y + x * c1, c2) => truncdiv(y, c2) + x * (c1 // c2)
    where c1 >= 0 and c2 > 0 and c1 % c2 == 0 and lo(x) >= 0 and lo(y) >= 0
truncdiv(x * c1 + y, c2) -> x * (c1 // c2) + truncdiv(y, c2)
    where c1 >= 0 and c2 > 0 and c1 % c2 == 0 and lo(x) >= 0 and lo(y) >= 0
truncdiv(min(x * c1, y), c2) => min(x * (c1 // c2), truncdiv(y, c2)) where c2 > 0 and c1 % c2 == 0
truncdiv(max(x * c1, y), c2) => max(x * (c1 // c2), truncdiv(y, c2)) where c2 > 0 and c1 % c2 == 0
truncdiv(min(y, x * c1), c2) => min(truncdiv(y, c2), x * (c1 // c2)) where c2 > 0 and c1 % c2 == 0
truncdiv(max(y, x * c1), c2) => max(truncdiv(y, c2), x * (c1 // c2)) where c2 > 0 and c1 % c2 == 0
truncdiv((x * c1 + y) + z, c2) -> x * (c1 // c2) + truncdiv(y + z, c2)
    where c1 >= 0 and c2 > 0 and c1 % c2 == 0 and lo(x) >= 0 and lo(y + z) >= 0
truncdiv((x * c1 - y) + z, c2) -> x * (c1 // c2) + truncdiv(z - y, c2)
    where c1 >= 0 and c2 > 0 and c1 % c2 == 0 and lo(x) >= 0 and lo(z - y) >= 0
truncdiv((x * c1 + y) - z, c2) -> x * (c1 // c2) + truncdiv(y - z, c2)
    where c1 >= 0 and c2 > 0 and c1 % c2 == 0 and lo(x) >= 0 and lo(y - z) >= 0
truncdiv(x + c1, c2) -> truncdiv(x, c2) + c1 // c2 where c1 > 0 and c2 > 0 and c1 % c2 == 0 and lo(x) >= 0
truncdiv(x + y, x) -> truncdiv(y, x) + 1 where lo(x) > 0 and lo(y) >= 0
truncdiv((x + y) + z, x) -> truncdiv(y + z, x) + 1 where lo(x) > 0 and lo(y + z) >= 0
truncdiv(x * y, y) -> x where nonzero(y)
truncdiv(y + x * z, z) => truncdiv(y, z) + x where lo(x) >= 0 and lo(y) >= 0 and lo(z) > 0
truncdiv(y + z * x, z) => truncdiv(y, z) + x where lo(x) >= 0 and lo(y) >= 0 and lo(z) > 0
truncdiv(x * z + y, z) -> x + truncdiv(y, z) where lo(x) >= 0 and lo(y) >= 0 and lo(z) > 0
truncmod(x * c1, c2) -> 0 where c2 != 0 and c1 % c2 == 0
truncmod(x * c1 + y, c2) -> truncmod(y, c2) where c2 > 0 and c1 >= 0 and c1 % c2 == 0 and lo(x) >= 0 and lo(y) >= 0
truncmod(x + c1, c2) -> truncmod(x, c2) where c2 > 0 and c1 >= 0 and c1 % c2 == 0 and lo(x) >= 0
truncmod(x, c1) -> truncmod(x, 0 - c1) where c1 < 0
min(truncdiv(x, c1), truncdiv(y, c1)) -> truncdiv(min(x, y), c1) where c1 > 0
max(truncdiv(x, c1), truncdiv(y, c1)) -> truncdiv(max(x, y), c1) where c1 > 0
min(truncdiv(x, c1), truncdiv(y, c1)) -> truncdiv(max(x, y), c1) where c1 < 0
max(truncdiv(x, c1), truncdiv(y, c1)) -> truncdiv(min(x, y), c1) where c1 < 0
min(truncdiv(x + c1, c2) * c2, x) -> x where c2 > 0 and c1 + 1 == c2
max(truncdiv(x + c1, c2) * c2, x) -> truncdiv(x + c1, c2) * c2 where c2 > 0 and c1 + 1 == c2
min(truncdiv(x + c1, c2) * c2, max(x, c2)) -> max(x, c2) where c2 > 0 and c1 + 1 == c2 and lo(x) > 0

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
(x * c1) // c2 -> x * (c1 // c2) + lo(x) * (c1 % c2) // c2
    where c1 > c2 > 0 and lo(x) * (c1 % c2) // c2 == hi(x) * (c1 % c2) // c2
(x * c1 + y) // c2 -> x * (c1 // c2) + (lo(x) * (c1 % c2) + lo(y)) // c2
    where c1 > c2 > 0 and (lo(x) * (c1 % c2) + lo(y)) // c2 == (hi(x) * (c1 % c2) + hi(y)) // c2
(x * c1 + y) // c2 -> x // (c2 // c1) + lo(y) // c2 where c1 > 0 < c2 and c2 % c1 == 0 and hi(y) - lo(y) // c2 * c2 < c1
(x + c1) // c2 -> x // c2 + c1 // c2 where c2 > 0 and c1 % c2 == 0
((x * c1 + y) + z) // c2 -> x * (c1 // c2) + (y + z) // c2 where c2 > 0 and c1 % c2 == 0
((x * c1 - y) + z) // c2 -> x * (c1 // c2) + (z - y) // c2 where c2 > 0 and c1 % c2 == 0
((x * c1 + z) - y) // c2 -> x * (c1 // c2) + (z - y) // c2 where c2 > 0 and c1 % c2 == 0
min(x * c1, y) // c2 => min(x * (c1 // c2), y // c2) where c2 > 0 and c1 % c2 == 0
max(x * c1, y) // c2 => max(x * (c1 // c2), y // c2) where c2 > 0 and c1 % c2 == 0
min(y, x * c1) // c2 => min(y // c2, x * (c1 // c2)) where c2 > 0 and c1 % c2 == 0
max(y, x * c1) // c2 => max(y // c2, x * (c1 // c2)) where c2 > 0 and c1 % c2 == 0
(x % 2 + 1) // 2 -> x % 2
(x * c1) // (x * c2) -> c1 // c2 where c2 != 0 and nonzero(x)
(x - x % c1) // c1 -> x // c1
((x + y) + z) // x -> (y + z) // x + 1 where nonzero(x)
((x * z) * c1 + y) // (z * c1) -> x + y // (z * c1) where c1 != 0 and nonzero(z)
(x + y) // x -> y // x + 1 where nonzero(x)
(x - y) // x -> (0 - y) // x + 1 where nonzero(x)
(z + x * y) // y => z // y + x where nonzero(y)
(z + y * x) // y => z // y + x where nonzero(y)
(x * y + z) // y -> x + z // y where nonzero(y)
(x * y + z) // y -> x where lo(z) >= 0 and less(z, y)
(z - x * y) // y -> z // y - x where nonzero(y)
x // y -> 0 where lo(x) >= 0 and less(x, y)
x // -1 -> 0 - x
x // (0 - y) -> (0 - x) // y
x // (y * c1) -> (0 - x) // (y * (0 - c1)) where c1 < 0

# floormod
(x * c1) % c2 -> 0 where c2 > 0 and c1 % c2 == 0
(x * c1 + y) % c2 -> y % c2 where c2 > 0 and c1 % c2 == 0
(y - x * c1) % c2 -> y % c2 where c2 > 0 and c1 % c2 == 0
(x * c1 + y) % c2 -> (x % (c2 // c1)) * c1 + y where c1 > 0 and c2 > 0 and c2 % c1 == 0 and lo(y) >= 0 and hi(y) < c1
(x * c1) % c2 -> (x * (c1 % c2)) % c2 where c2 > 0 and c1 % c2 != c1
(y + x * c1) % c2 => (y + x * (c1 % c2)) % c2 where c2 > 0 and c1 % c2 != c1
(x * c1 + y) % c2 -> (x * (c1 % c2) + y) % c2 where c2 > 0 and c1 % c2 != c1
(x - x % y) % y -> 0
(x % y - x) % y -> 0
(x - x % (0 - y)) % y -> 0
((0 - y) % x + y) % x -> 0
((x * z) * c1 + y) % (z * c1) -> y % (z * c1)
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
min(x // c1, y // c1) -> max(x, y) // c1 where c1 < 0
max(x // c1, y // c1) -> min(x, y) // c1 where c1 < 0
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
x + c1 < y + c2 -> x < y + (c2 - c1) where c1 <= c2
x + c1 < y + c2 -> x + (c1 - c2) < y where c2 < c1
c1 < x + c2 -> c1 - c2 < x
x + c1 < c2 -> x < c2 - c1
c1 < c2 - x -> x < c2 - c1
c1 - x < c2 -> c1 - c2 < x
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
((x + c2) // c1) * c1 < x - y -> y < (x + c2) % c1 + (0 - c2) where c1 > 0
x < c1 - y -> x + y < c1
x < y + 1 -> x <= y
x - 1 < y -> x <= y
x < y + c1 -> x + (0 - c1) < y where c1 < 0
x + c1 < y -> x < y + (0 - c1) where c1 < 0
truncdiv(x, c1) < c2 -> x < c1 * c2 where c1 > 0 and c2 > 0
truncdiv(x, c1) < c2 -> x < c1 * (c2 - 1) + 1 where c1 > 0 and c2 <= 0
c1 < truncdiv(x, c2) -> (c1 + 1) * c2 - 1 < x where c1 >= 0 and c2 > 0
c1 < truncdiv(x, c2) -> c1 * c2 < x where c1 < 0 and c2 > 0
truncdiv(x, c1) * c1 < x -> 0 < truncmod(x, c1)
truncdiv(x, c1) * c1 < x + y -> 0 < truncmod(x, c1) + y
truncdiv(x, c1) * c1 < x - y -> y < truncmod(x, c1)
truncdiv(x + c2, c1) * c1 < x -> c2 < truncmod(x + c2, c1)
truncdiv(x + c2, c1) * c1 < x + y -> c2 < truncmod(x + c2, c1) + y
truncdiv(x + c2, c1) * c1 < x - y -> y < truncmod(x + c2, c1) + (0 - c2)
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
x // c2 == c1 and x % c2 == c3 -> x == c1 * c2 + c3 where 0 <= c3 < c2 and index(x)
x // c2 == c1 and x % c2 < c3 -> c1 * c2 <= x and x < c1 * c2 + c3 where c3 <= c2 and c2 > 0 and index(x)
x // c2 == c1 and x % c2 <= c3 -> c1 * c2 <= x and x <= c1 * c2 + c3 where c3 < c2 and c2 > 0 and index(x)
x // c2 == c1 and c3 <= x % c2 -> c1 * c2 + c3 <= x and x < (c1 + 1) * c2 where c3 >= 0 and c2 > 0 and index(x)
x // c2 == c1 and c3 < x % c2 -> c1 * c2 + c3 < x and x < (c1 + 1) * c2 where c3 >= -1 and c2 > 0 and index(x)
0 <= x + y * c2 and x + y * c2 < c1 -> y == x // c1 where c1 > 0 and c1 + c2 == 0 and index(x)
0 <= x - y * c1 and x - y * c1 < c1 -> y == x // c1 where c1 > 0 and index(x)
x < c1 and x % c2 < c3 => x < c1 - c2 + c3 and x % c2 < c3 where 0 < c3 < c2 and c1 % c2 == 0 and index(x)
x < c1 and x % c2 < c3 => x < c1 - c1 % c2 + c3 and x % c2 < c3 where 0 < c3 < c2 and c1 % c2 > c3 and index(x)
x <= c1 and x % c2 < c3 => x < c1 + 1 - c2 + c3 and x % c2 < c3 where 0 < c3 < c2 and (c1 + 1) % c2 == 0 and index(x)
x <= c1 and x % c2 < c3 => x < c1 + 1 - (c1 + 1) % c2 + c3 and x % c2 < c3
    where 0 < c3 < c2 and (c1 + 1) % c2 > c3 and index(x)
x and (y and z) => (x and y) and z

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
x or (y or z) => (x or y) or z
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
