"""Random numbers of the generator that PyTorch has for processors: a Mersenne Twister (MT19937)."""

from __future__ import annotations

from ..ir.expr import PrimExpr
from ..relax import script_kernels as kernels
from ..script import tir as T
from ..tir.buffer import Buffer
from ..tir.function import PrimFunc


def _twisted(words: Buffer, this: PrimExpr, following: PrimExpr, far: PrimExpr) -> PrimExpr:
    """The word in place of the one at `this`, in the next block of words."""
    mixed = words[this] & T.uint32(0x80000000) | words[following] & T.uint32(0x7FFFFFFF)
    odd = T.uint32(0) - (words[following] & T.uint32(1))
    return words[far] ^ mixed >> T.uint32(1) ^ odd & T.uint32(0x9908B0DF)


def _tempered(word: PrimExpr) -> PrimExpr:
    """The random bits that a word of the state gives."""
    word = word ^ word >> T.uint32(11)
    word = word ^ word << T.uint32(7) & T.uint32(0x9D2C5680)
    word = word ^ word << T.uint32(15) & T.uint32(0xEFC60000)
    return word ^ word >> T.uint32(18)


@kernels.bernoulli.provide
def bernoulli() -> PrimFunc:
    """Draws n > 0 booleans, each true with a probability of `limit / 2**53`, and moves the state on.

    The parameters are the state, the result (n,) and `limit`, int64. The state is that of `torch.Generator.get_state()`
    as int64 (632,). Its element 1 is, in the lower half, one more than the number of words that are left in the block,
    element 2 the place of the next word, and a word is in each of the elements from 3 on.
    """

    @T.prim_func
    def mt19937_bernoulli(var_state: T.handle, var_result: T.handle, limit: T.int64):
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        n = T.int64()
        state = T.match_buffer(var_state, (632,), "int64")
        result = T.match_buffer(var_result, (n,), "bool")
        words = T.alloc_buffer((624,), "uint32")
        # A draw takes two words, which may be the last of a block and the first of the next: before the words of a
        # block stands the last one of the block before.
        bits = T.alloc_buffer((625,), "uint32")
        for j in range(624):
            words[j] = T.Cast("uint32", state[3 + j])
        # Words are counted from the first of the block that the state has.
        begin: T.int64 = T.int64(625) - state[1] % T.int64(1 << 32)
        end: T.int64 = begin + 2 * n
        for block in range((end - 1) // 624 + 1):
            if block > 0:
                for j in range(227):
                    words[j] = _twisted(words, j, j + 1, j + 397)
                for j in range(396):
                    words[227 + j] = _twisted(words, 227 + j, 228 + j, j)
                words[623] = _twisted(words, 623, 0, 396)
            bits[0] = bits[624]
            for j in range(624):
                bits[1 + j] = _tempered(words[j])
            # The draws whose second word is in this block.
            first: T.int64 = T.max((624 * block - begin) // 2, T.int64(0))
            last: T.int64 = T.min((624 * (block + 1) - begin) // 2, n)
            for j in range(last - first):
                at: T.int64 = begin + 2 * (first + j) - 624 * block + 1
                drawn: T.int64 = T.Cast("int64", bits[at] & T.uint32(0x1FFFFF)) * T.int64(1 << 32) + T.Cast(
                    "int64", bits[at + 1]
                )
                result[first + j] = drawn < limit
        used: T.int64 = end - (end - 1) // 624 * 624
        state[1] = state[1] // T.int64(1 << 32) * T.int64(1 << 32) + 625 - used
        state[2] = used
        for j in range(624):
            state[3 + j] = T.Cast("int64", words[j])

    return mt19937_bernoulli
