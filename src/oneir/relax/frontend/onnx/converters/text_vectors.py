"""Counts of n-grams: TfIdfVectorizer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr
from ....struct_info import TensorStructInfo
from ..context import Context
from ..objects import Strings, constant_strings, is_object, runtime_value
from ..registry import converter


@converter("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(
    g: Context,
    x: Expr,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Expr:
    """How often each n-gram of a pool occurs in a row, with up to `max_skip_count` elements between its parts."""
    pool = list(pool_int64s or ())
    if pool_strings is not None:
        # Strings are numbered by their first place in the pool.
        numbers = {text: i for i, text in reversed(list(enumerate(pool_strings)))}
        pool = [numbers[text] for text in pool_strings]
        if is_object(g, x):
            keys, values = np.array(list(numbers), object), np.array(list(numbers.values()), np.int64)
            given = [x, constant_strings(g, keys), g.constant(values), g.constant(np.array([-1]))]
            kind = g.objects[x]
            assert isinstance(kind, Strings)
            x = runtime_value(g, "vm.builtin.encode_labels", given, TensorStructInfo(dtype="int64", ndim=kind.ndim))
    shape = g.shape(x)
    length, axis = shape[-1], len(shape)
    rows = g.cast(g.reshaped(x, [*shape[:-1], 1, length]), "int64")
    # What no n-gram has follows each row, so that every element begins one, in rows of any length.
    nothing = g.constant(np.asarray(min(pool, default=0) - 1, np.int64))
    ends = [*ngram_counts[1:], len(pool)]
    grams = [np.reshape(pool[a:b], (-1, n + 1)) for n, (a, b) in enumerate(zip(ngram_counts, ends, strict=True))]
    counts: list[Expr] = []
    same: Expr | None
    for n, known in enumerate(grams, 1):
        found: Expr = g.broadcast(g.constant(np.zeros([], np.float32)), [*shape[:-1], len(known)])
        # Single elements have nothing between them.
        steps = range(1, max_skip_count + 2 if n > 1 else 2) if min_gram_length <= n <= max_gram_length else ()
        for step in steps:
            if not len(known):
                continue
            padded, same = rows, None
            if n > 1:
                rest = g.broadcast(nothing, [*shape[:-1], 1, (n - 1) * step])
                padded = g.emit(op.concat([rows, rest], axis))
            for k in range(n):
                part = op.strided_slice(padded, [axis], [k * step], [k * step + length], assume_inbound=True)
                equal = op.equal(part, g.constant(known[:, k : k + 1].astype(np.int64)))
                same = equal if same is None else op.logical_and(same, equal)
            assert same is not None
            found = g.emit(op.add(found, op.sum(op.astype(same, "float32"), -1)))
        counts.append(found)
    order = np.zeros(max(ngram_indexes) + 1, np.int64)
    order[list(ngram_indexes)] = np.arange(len(ngram_indexes))
    counted = g.emit(op.take(op.concat(counts, -1), g.constant(order), -1))
    if mode == "TF":
        return counted
    if mode not in ("IDF", "TFIDF"):
        raise UnsupportedError(f"expected the mode TF, IDF or TFIDF, found {mode}")
    scale = np.ones(len(order), np.float32) if weights is None else np.asarray(weights, np.float32)[order]
    if mode == "IDF":
        counted = op.astype(op.greater(counted, g.constant(np.zeros([], np.float32))), "float32")
    return g.emit(op.multiply(counted, g.constant(scale)))
