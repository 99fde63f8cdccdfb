"""Products of rows in int8 with weights of digits: against NumPy, in each form, for every number of rows and target."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from weight_forms import random_weight

import oneir
from oneir.dlight.cpu import IntegerDots
from oneir.ir.expr import IntImm, const
from oneir.ir.visitor import Mapper, Visitor
from oneir.llm.kernels import group_quantized as gq
from oneir.llm.kernels.forms import FORMS, DigitForm
from oneir.runtime.error import ShapeMismatch
from oneir.target import Target
from oneir.target.cpu import enabled_features
from oneir.testing import interpret
from oneir.tir import Call, PrimFunc, decl_buffer

N, K = 96, 512
RNG = np.random.default_rng(7)
DIGITS = [name for name, form in FORMS.items() if isinstance(form, DigitForm)]


def digit_form(name: str) -> DigitForm:
    form = FORMS[name]
    assert isinstance(form, DigitForm)
    return form


class Case:
    """Rows and a weight in a form: what a product is called with, and what it has to give."""

    def __init__(self, name: str, m: int, n: int = N, k: int = K):
        self.form = digit_form(name)
        values = RNG.integers(-127, 128, (m, k // 32, 32)).astype("int8")
        scales = RNG.random((m, k // 32)).astype("float32")
        sums = values.reshape(m, k // self.form.group, self.form.group).sum(-1, dtype="int32")
        blocks, weight = random_weight(name, n, k)
        packed = self.form.pack(blocks, n, k)
        self.arguments = [values, scales, sums, *packed.values(), np.zeros((m, n), "float32")]
        self.expected = (values * scales[..., None].astype("float64")).reshape(m, k) @ weight.T.astype("float64")

    def check(self, found: np.ndarray) -> None:
        assert np.abs(found - self.expected).max(initial=0) <= 1e-6 * np.abs(self.expected).max(initial=0)


def with_rows(func: PrimFunc, m: int | None) -> PrimFunc:
    """The function for a fixed number of rows."""
    if m is None:
        return func
    shape = func.buffer_map[func.params[0]].shape
    return func.specialize({func.params[0]: decl_buffer([const(m, "int64"), *shape[1:]], "int8")})


def run(func: PrimFunc, target: Target, arguments: list[np.ndarray]) -> list[np.ndarray]:
    tensors = [oneir.nd.array(x) for x in arguments]
    oneir.build(func.with_attr("global_symbol", "f"), target)["f"](*tensors)
    return [t.numpy() for t in tensors]


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    found = IntegerDots().apply(func, target)
    assert found is not None
    return found.mod["main"]


class _Calls(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def visit_Call(self, call: Call) -> None:
        if call.op.name == "tir.call_llvm_pure_intrin":
            self.names.add(call.args[0].value)
        self.generic_visit(call)


def instructions(func: PrimFunc) -> set[str]:
    calls = _Calls()
    calls(func.body)
    return calls.names


@pytest.mark.parametrize("fixed", [None, 1, 2, 3, 4, 6])
def test_products_of_any_number_of_rows(fixed: int | None) -> None:
    target = Target("llvm")
    func = scheduled(with_rows(gq.product(digit_form("Q4_0"), N, K), fixed), target)
    for m in [fixed] if fixed else [1, 3, 4, 9]:
        case = Case("Q4_0", m)
        case.check(run(func, target, case.arguments)[-1])


@pytest.mark.parametrize("fixed", [None, 1, 3, 4, 6])
def test_products_that_are_added_up_in_pairs(fixed: int | None) -> None:
    """They are exact with the largest digits and bytes, for which 16 bits just hold the sums of a group."""
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    func = scheduled(with_rows(gq.product(digit_form("Q4_0"), N, K, in_pairs=True), fixed), target)
    assert instructions(func) == {"llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"}
    if not enabled_features(Target("llvm"), ["avx2"]):
        pytest.skip("the processor lacks AVX2")
    for m in [fixed] if fixed else [1, 4, 9]:
        case = Case("Q4_0", m)
        case.check(run(func, target, case.arguments)[-1])
        for array, extreme in zip(case.arguments, (-128, 1, -128 * 32, 255, 1), strict=False):
            array[...] = extreme
        np.testing.assert_array_equal(run(func, target, case.arguments)[-1], K * 7 * -128.0)


@pytest.mark.parametrize(("name", "k"), [("Q4_0", 2048), ("Q4_0", 43 * 32), ("Q4_1", 1536), ("Q4_K", 1024)])
def test_tiles_of_rows_share_the_digits_that_the_first_one_unpacks(name: str, k: int) -> None:
    """One part of the sum after the other, in parts of 16 groups where these are parts of all."""
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    func = scheduled(gq.product(digit_form(name), 32, k, in_pairs=True), target)
    first, _, others = func.script().partition("else:")
    assert ('T.block("unpack")' in first, 'T.block("unpack")' in others) == (True, False)
    assert ('T.block("scale")' in first, 'T.block("scale")' in others) == (True, False)
    if not enabled_features(Target("llvm"), ["avx2"]):
        pytest.skip("the processor lacks AVX2")
    for m in (0, 1, 4, 5, 9):
        case = Case(name, m, 32, k)
        case.check(run(func, target, case.arguments)[-1])


@pytest.mark.parametrize("fixed", [None, 1, 3, 4, 6])
@pytest.mark.parametrize("name", ["Q8_0", "Q6_K"])
def test_products_of_words_that_are_added_up_in_pairs(name: str, fixed: int | None) -> None:
    """With groups of 32 and of 16; products of the largest digits and bytes are exact."""
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    func = scheduled(with_rows(gq.product(digit_form(name), N, K, in_pairs=True), fixed), target)
    assert instructions(func) == {"llvm.x86.avx2.pmadd.wd"}
    if not enabled_features(Target("llvm"), ["avx2"]):
        pytest.skip("the processor lacks AVX2")
    for m in [fixed] if fixed else [0, 1, 4, 9]:
        case = Case(name, m)
        case.check(run(func, target, case.arguments)[-1])
    if name == "Q8_0" and fixed:
        for array, extreme in zip(case.arguments, (-128, 1, -128 * 32, 255, 1), strict=False):
            array[...] = extreme
        np.testing.assert_array_equal(run(func, target, case.arguments)[-1], K * 127 * -128.0)


@pytest.mark.parametrize("name", DIGITS)
def test_pairs_give_what_products_one_by_one_give(name: str) -> None:
    """Plain loops; digits of 4 bits in groups of 16 stay as they are. The least of elements that has several groups."""
    along = max(64, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][0])
    case = Case(name, 2, 32, along)
    func = gq.product(case.form, 32, along, in_pairs=True)
    assert (func is gq.product(case.form, 32, along)) == (case.form.bits == 4 and case.form.group < 32)
    interpret(func, *case.arguments)
    case.check(case.arguments[-1])


def test_pairs_are_for_processors_that_add_up_in_16_bits() -> None:
    func = gq.product(digit_form("Q4_0"), 32, 64, in_pairs=True)
    haswell, zen = (Target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}") for cpu in ("haswell", "znver4"))
    assert IntegerDots().apply(func, haswell) is not None
    assert IntegerDots().apply(func, zen) is None
    assert IntegerDots().apply(func.replace(body=_Wider()(func.body)), haswell) is None
    words = gq.product(digit_form("Q8_0"), 32, 64, in_pairs=True)
    assert IntegerDots().apply(words, haswell) is not None
    assert IntegerDots().apply(words, zen) is None


@pytest.mark.parametrize("name", DIGITS)
def test_every_form_of_digits(name: str) -> None:
    case, target = Case(name, 5), Target("llvm")
    func = gq.product(case.form, N, K)
    case.check(run(scheduled(func, target), target, case.arguments)[-1])


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q6_K"])
@pytest.mark.parametrize(
    ("processor", "needed", "instruction"),
    [
        ("-mcpu=haswell", "avx2", "llvm.x86.avx2.pmadd.ub.sw"),
        ("-mcpu=alderlake", "avxvnni", "llvm.x86.avx512.vpdpbusd.256"),
        ("-mcpu=znver4", "avx512vnni", "llvm.x86.avx512.vpdpbusd.512"),
    ],
)
def test_each_processor_gets_its_instructions(name: str, processor: str, needed: str, instruction: str) -> None:
    target = Target(f"llvm -mtriple=x86_64-unknown-linux-gnu {processor}")
    case = Case(name, 3, 32, 256)
    func = scheduled(gq.product(case.form, 32, 256), target)
    assert instructions(func) >= {instruction}
    if enabled_features(Target("llvm"), [needed]):
        case.check(run(func, target, case.arguments)[-1])


def test_the_largest_bytes_do_not_saturate() -> None:
    # Sums of two products of bytes have 17 bits, more than AVX2 adds them up in.
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    if not enabled_features(Target("llvm"), ["avx2"]):
        pytest.skip("the processor lacks AVX2")
    case = Case("Q8_0", 1, 32, 64)
    for array, extreme in zip(case.arguments, (-128, 1, -128 * 32, 255, 1), strict=False):
        array[...] = extreme
    *_, found = run(scheduled(gq.product(case.form, 32, 64), target), target, case.arguments)
    np.testing.assert_array_equal(found, np.full((1, 32), 64 * 127 * -128, "float32"))


@pytest.mark.parametrize("name", ["Q4_0", "Q5_1"])
def test_processors_without_integer_dots_compute_the_plain_loops(name: str) -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64")
    case = Case(name, 2, 32, 64)
    func = gq.product(case.form, 32, 64)
    assert IntegerDots().apply(func, target) is None
    case.check(run(func, target, case.arguments)[-1])
    interpret(func, *case.arguments)
    case.check(case.arguments[-1])


def test_other_products_are_left_to_other_rules() -> None:
    a, b = (oneir.te.placeholder((8, 64), "int8", name) for name in "ab")
    k = oneir.te.reduce_axis((0, 64), "k")
    product = oneir.te.compute((8, 8), lambda i, j: oneir.te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), k))
    assert IntegerDots().apply(oneir.te.create_prim_func([a, b, product]), Target("llvm")) is None


class _Wider(Mapper):
    """Digits of 5 bits in place of those of 4."""

    def visit_IntImm(self, node: IntImm) -> IntImm:
        return const(31, "uint8") if node.dtype == "uint8" and node.value == 15 else node


def test_digits_of_more_than_4_bits_are_multiplied_as_bytes() -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    func = gq.product(digit_form("Q4_0"), 32, 64)
    wider = func.replace(body=_Wider()(func.body))
    # Bytes take a second sum of pairs.
    counts = [scheduled(f, target).script().count("llvm.x86.avx2.pmadd.wd") for f in (func, wider)]
    assert counts[1] == 2 * counts[0] > 0


@pytest.mark.parametrize("before", ["", "norm", "gate"])
@pytest.mark.parametrize("part", [16, 32])
def test_rows_become_bytes_with_their_scales_and_sums(part: int, before: str) -> None:
    x = RNG.standard_normal((5, K)).astype("float32")
    x[2, 32:64] = 0
    given, rows = [x], x.astype("float64")
    if before == "norm":
        given.append(RNG.random(K).astype("float32"))
        rows = rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 0.5) * given[1]
    elif before == "gate":
        gate = RNG.standard_normal((5, K)).astype("float32") * 50
        given = [np.concatenate([gate, x], 1)]
        rows = rows * gate * np.exp(-np.logaddexp(0, -gate.astype("float64")))
    groups = rows.reshape(5, -1, 32)
    scale = np.abs(groups).max(-1) / 127
    func = gq.quantize_rows(K, part, 0.5 if before == "norm" else None, before == "gate")
    results = [np.zeros((5, K // 32, 32), "int8"), np.zeros((5, K // 32), "float32"), np.zeros((5, K // part), "int32")]
    *_, values, scales, sums = run(func, Target("llvm"), [*given, *results])
    np.testing.assert_allclose(scales, scale, rtol=2e-6)
    # Half a step, and the rounding of what is quantized.
    assert (np.abs(values * scales[..., None] - groups) <= 0.501 * scale[..., None]).all()
    assert np.abs(values).max() == 127 and (values[2, 1] == 0).all()
    np.testing.assert_array_equal(sums, values.reshape(5, -1, part).sum(-1, dtype="int32"))


@pytest.mark.parametrize(
    ("name", "n", "k", "message"),
    [
        ("Q4_0", 48, 64, "the outputs .* multiple of 32"),
        ("Q8_0", 64, 48, "the sum .* multiple of 32"),
        ("Q4_0", 32, 0, "the sum .* multiple of 32"),
        ("Q4_K", 32, 128, "the sum .* multiple of 256"),
    ],
)
def test_parts_of_panels_and_groups_are_refused(name: str, n: int, k: int, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        gq.product(digit_form(name), n, k)
