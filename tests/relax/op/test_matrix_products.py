"""Products of matrices, over dtypes, numbers at which they break, and odd shapes.

A row an operator; the oracles are Python's integers and NumPy's float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from op_cases import NUMBERS, Case, Table, case, check_cases, operators_of, some, wide
from op_numbers import exact, wrap

from oneir.relax import op

ROWS = Table()
NAN, INF = math.nan, math.inf
row = ROWS.row


def test_every_operator_has_a_row() -> None:
    assert operators_of("linear_algebra") == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    check_cases(list(ROWS[name]()))


@row("relax.matmul")
def matmul() -> Iterator[Case]:
    def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return wrap(np.matmul(exact(a), exact(b)), a.dtype)

    for dtype in NUMBERS:
        yield case(
            op.matmul,
            some((5, 33), dtype, -9, 9),
            some((33, 7), dtype, -9, 9, seed=1),
            oracle=product,
            ulps=4 if dtype in ("float16", "bfloat16") else None,
            label=dtype,
        )
    shapes: list[tuple[Any, Any]] = [
        ((3,), (3,)),
        ((3,), (3, 2)),
        ((2, 3), (3,)),
        ((1, 1), (1, 1)),
        ((4, 2, 3), (3, 5)),
        ((2, 3), (4, 3, 5)),
        ((2, 1, 4, 3), (5, 3, 2)),
        ((3,), (2, 3, 4)),
        ((2, 3, 4), (4,)),
        ((0, 3), (3, 4)),
        ((2, 3), (3, 0)),
        ((2, 0), (0, 3)),
        ((0,), (0,)),
        ((0, 2, 3), (3, 4)),
        ((1, 64), (64, 17)),
        ((17, 64), (64, 1)),
        ((2, 0, 3), (2, 3, 0)),
    ]
    for a, b in shapes:
        yield case(op.matmul, some(a), some(b, seed=1), oracle=product, label=f"{a} {b}")
    for source, target in (
        ("int8", "int32"),
        ("uint8", "int32"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("int32", "float64"),
        ("float32", "float16"),
    ):
        yield case(
            lambda x, y, t=target: op.matmul(x, y, t),
            some((3, 40), source, -100, 100),
            some((40, 5), source, -9, 9, seed=1),
            oracle=lambda x, y, t=target: np.matmul(exact(x.astype(t)), exact(y.astype(t))).astype(float),
            dtype=target,
            ulps=4 if target == "float16" else None,
            label=f"{source} to {target}",
        )
    yield case(
        lambda x, y: op.matmul(x, y, "int32"),
        some((3, 4), "uint8", 0, 255),
        some((4, 5), "int8", -128, 127),
        oracle=lambda x, y: np.matmul(exact(x), exact(y)).astype("int32"),
        dtype="int32",
        label="two dtypes",
    )
    for n, k, m in ((1, 5, 3), (4, 33, 9)):
        runs = [(some((p, q)), some((q, r), seed=1)) for p, q, r in ((n, k, m), (0, k, m), (n, 0, m), (n, k, 0))]
        yield case(
            lambda x, y, n, k, m: op.matmul(x, y),
            *runs[0],
            dims={0: ("n", "k"), 1: ("k", "m")},
            again=runs[1:],
            oracle=product,
            label="symbolic",
        )
    for dtype in ("float16", "bfloat16"):
        long = some((3, 2048), dtype, 0, 1), some((2048, 5), dtype, 0, 1)
        yield case(op.matmul, *long, oracle=product, ulps=1, label=f"long sums in {dtype}")
    runs = [(some((b, n, 8)), some((8, 6), seed=1)) for b, n in ((0, 2), (1, 1), (3, 5))]
    yield case(
        lambda x, y, b, n: op.matmul(x, y),
        *runs[0],
        dims={0: ("b", "n", 8)},
        again=runs[1:],
        oracle=product,
        label="symbolic batches",
    )
    broken = np.array([[0, NAN], [INF, 0], [1, 1]], "float32")
    yield case(op.matmul, broken, np.array([[1, 0], [0, 1]], "float32"), oracle=product, label="NaN")


@row("relax.einsum")
def einsum() -> Iterator[Case]:
    def summed(subscripts: str) -> Callable[..., Any]:
        return lambda *arrays: wrap(np.einsum(subscripts, *map(exact, arrays), optimize=False), arrays[0].dtype)

    def one(subscripts: str, *inputs: np.ndarray, **more: Any) -> Case:
        return case(
            lambda *a, s=subscripts: op.einsum(a, s),
            *inputs,
            oracle=summed(subscripts),
            label=f"einsum {subscripts}",
            **more,
        )

    for dtype in NUMBERS:
        yield one("ij,jk->ik", some((3, 9), dtype), some((9, 4), dtype, seed=1))
    square = some((4, 4))
    for subscripts in (
        "ii",
        "ii->i",
        "ij->",
        "ij->ji",
        "ij",
        "ij,ij->",
        "ij,ij->ij",
        "ij,ji->i",
        "ij,kl->ijkl",
        "ij,jk,kl->il",
        "ij, jk",
        "...i->...",
        "i...->...",
    ):
        yield one(subscripts, *[square] * (subscripts.count(",") + 1))
    for subscripts, *shapes in (
        ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("i,i->", (0,), (0,)),
        ("ij,jk->ik", (2, 0), (0, 3)),
        ("ij,jk->ik", (0, 2), (2, 3)),
        ("i,j->ij", (1,), (33,)),
        (",->", (), ()),
        ("i,->i", (3,), ()),
        ("bhqd,bhkd->bhqk", (1, 2, 3, 4), (1, 2, 5, 4)),
        ("ij->j", (0, 3)),
        ("...->...", (2, 3)),
        ("ijk->kji", (2, 3, 4)),
        ("...,...", (2, 3), (3,)),
    ):
        yield one(subscripts, *[some(s, seed=i) for i, s in enumerate(shapes)])
    runs = [(some((n, k)), some((k, 4), seed=1)) for n, k in ((2, 3), (0, 3), (2, 0), (1, 40))]
    yield case(
        lambda x, y, n, k: op.einsum((x, y), "ij,jk->ik"),
        *runs[0],
        dims={0: ("n", "k"), 1: ("k", 4)},
        again=runs[1:],
        oracle=summed("ij,jk->ik"),
        label="symbolic",
    )


@row("relax.outer")
def outer() -> Iterator[Case]:
    def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return wrap(np.multiply.outer(exact(a), exact(b)), a.dtype)

    for dtype in NUMBERS:
        yield case(op.outer, some(5, dtype, -99, 99), some(33, dtype, -99, 99, seed=1), oracle=products, label=dtype)
    for n, m in ((0, 3), (3, 0), (1, 1)):
        yield case(op.outer, some(n), some(m), oracle=products, label=f"{n, m}")
    runs = [(some(n), some(m, seed=1)) for n, m in ((0, 2), (1, 1), (5, 17))]
    yield case(
        lambda x, y, n, m: op.outer(x, y),
        *runs[0],
        dims={0: ("n",), 1: ("m",)},
        again=runs[1:],
        oracle=products,
        label="symbolic",
    )


def test_weights_are_transposed_and_a_bias_is_added() -> None:
    def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        return wide(x) @ wide(w).T + wide(b)

    cases = [
        case(
            lambda x, w, b: op.linear(x, w, b),
            some((*shape, 33), dtype),
            some((5, 33), dtype, seed=1),
            some(5, dtype),
            oracle=expected,
        )
        for shape, dtype in (((3,), "float32"), ((2, 3), "float16"), ((), "float32"), ((0, 2), "float64"))
    ]
    cases.append(case(lambda x, w: op.linear(x, w), some((3, 7)), some(7), oracle=lambda x, w: wide(x) @ wide(w)))
    runs = [(some((n, 33)), some((5, 33), seed=1), some(5)) for n in (0, 1, 9)]
    cases.append(
        case(lambda x, w, b, n: op.linear(x, w, b), *runs[0], dims={0: ("n", 33)}, again=runs[1:], oracle=expected)
    )
    check_cases(cases)
