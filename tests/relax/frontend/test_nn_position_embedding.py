"""Rotary position embeddings against `transformers`, and against rotations of complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.ir import assert_structural_equal
from oneir.relax.frontend import nn
from oneir.relax.frontend.nn.llm import position_embedding as rope
from oneir.runtime.error import InvalidValue, ShapeMismatch
from oneir.script import tir as T

rng = np.random.default_rng(3)
THETA, HEAD = 10000.0, 16
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 1024}
LONG = {"rope_type": "longrope", "max_position_embeddings": 128, "original_max_position_embeddings": 32}
FACTORS = np.linspace(1, 3, HEAD // 2).astype("float32")
# What `transformers` calls these, with what it wants besides.
PUBLISHED: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "llama3": LLAMA3,
    # It lets the temperature of attention grow with cosine and sine; the functions here leave that to attention.
    "yarn": {**YARN, "attention_factor": 1.0},
    "longrope": {**LONG, "factor": 4.0, "short_factor": FACTORS.tolist(), "long_factor": FACTORS.tolist()},
}
SCALINGS: dict[str, dict[str, Any]] = {"default": {}, "llama3": LLAMA3, "yarn": YARN, "longrope": LONG}


def published(name: str, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """x, of shape (rows, heads, head_dim), turned by `transformers`."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    parameters = {**PUBLISHED[name], "rope_theta": THETA}
    config = transformers.LlamaConfig(head_dim=x.shape[-1], max_position_embeddings=128, rope_parameters=parameters)
    heads = torch.from_numpy(x.astype("float32")).swapaxes(0, 1)[None]
    cos, sin = LlamaRotaryEmbedding(config)(heads, torch.from_numpy(positions)[None])
    return apply_rotary_pos_emb(heads, heads, cos, sin)[0][0].swapaxes(0, 1).numpy()


def neighbours(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """x, of shape (rows, heads, n), whose neighbours are complex numbers, turned by angles of shape (rows, n / 2)."""
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)[:, None]
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def halves(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """The same for complex numbers whose parts are half a head apart."""
    n = x.shape[-1] // 2
    turned = (x[..., :n] + 1j * x[..., n:]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], -1)


def by_map(func: tir.PrimFunc, qkv: np.ndarray, positions: np.ndarray, last: Any) -> list[np.ndarray]:
    """q, k and v of a function with a position map, natively; there are two heads of queries and one of keys."""
    out = [np.empty((len(qkv), heads, qkv.shape[-1]), qkv.dtype) for heads in (2, 1, 1)]
    oneir.build(func)(qkv, positions, *out, last)
    return out


POSITIONS = np.array([0, 1, 100, 7, 31], "int32")
QKV = rng.standard_normal((5, 4, HEAD)).astype("float32")


@pytest.mark.parametrize("name", SCALINGS)
def test_position_map_turns_as_published(name: str) -> None:
    func = rope.llama_rope_with_position_map(THETA, 1.0, HEAD, 2, 1, "float32", SCALINGS[name])
    q, k, v = by_map(func, QKV, POSITIONS, FACTORS if name == "longrope" else 1)
    expected = published(name, QKV[:, :3], POSITIONS.astype("int64"))
    np.testing.assert_allclose(np.concatenate([q, k], 1), expected, rtol=1e-5, atol=3e-5)
    np.testing.assert_array_equal(v, QKV[:, 3:])


def test_half_precision_computes_in_float32() -> None:
    qkv = QKV.astype("float16")
    positions = POSITIONS + 4097  # no number of float16
    q, k, _ = by_map(rope.llama_rope_with_position_map(THETA, 1.0, HEAD, 2, 1, "float16", {}), qkv, positions, 1)
    expected = published("default", qkv[:, :3], positions.astype("int64"))
    np.testing.assert_allclose(np.concatenate([q, k], 1), expected, rtol=1e-3, atol=2e-3)


def test_nothing_turns_where_it_is_not_asked_for() -> None:
    func = rope.llama_rope_with_position_map(THETA, 1.0, HEAD, 2, 1, "float32", {})
    np.testing.assert_array_equal(np.concatenate(by_map(func, QKV, POSITIONS, 0), 1), QKV)


def frequencies(n: int) -> np.ndarray:
    return THETA ** (-2 * np.arange(n // 2) / n)


@pytest.mark.parametrize("rotary_dim", [None, 8])
def test_neighbours_turn_together(rotary_dim: int | None) -> None:
    n = rotary_dim or HEAD
    expected = QKV.copy()
    expected[:, :3, :n] = neighbours(QKV[:, :3, :n], 0.5 * POSITIONS[:, None] * frequencies(n))
    for func in (
        rope.llama_rope_with_position_map(THETA, 0.5, HEAD, 2, 1, "float32", {"rope_type": "gptj"}, rotary_dim),
        rope.llama4_rope_with_position_map(THETA, 0.5, HEAD, 2, 1, "float32", {"rope_type": "gptj"}, rotary_dim),
    ):
        found = np.concatenate(by_map(func, QKV, POSITIONS, 1), 1)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=3e-5)


def stretched(frequency: float, scaling: dict[str, Any]) -> float:
    """Llama's rule for one frequency, case by case, by its wavelength."""
    context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    wave = 2 * np.pi / frequency
    if wave > context / scaling["low_freq_factor"]:
        return frequency / factor
    if wave < context / scaling["high_freq_factor"]:
        return frequency
    share = (context / wave - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
    return (1 - share) * frequency / factor + share * frequency


@pytest.mark.parametrize("high", [4.0, 1.0])
def test_llama4_divides_low_frequencies(high: float) -> None:
    scaling = {**LLAMA3, "rope_type": "llama4", "high_freq_factor": high}
    angles = POSITIONS[:, None] * np.array([stretched(f, scaling) for f in frequencies(HEAD)])
    func = rope.llama4_rope_with_position_map(THETA, 1.0, HEAD, 2, 1, "float32", scaling)
    q, k, _ = by_map(func, QKV, POSITIONS, 1)
    np.testing.assert_allclose(np.concatenate([q, k], 1), neighbours(QKV[:, :3], angles), rtol=1e-5, atol=3e-5)
    func = rope.llama_rope_with_position_map(THETA, 1.0, HEAD, 2, 1, "float32", {**scaling, "rope_type": "llama3"})
    q, k, _ = by_map(func, QKV, POSITIONS, 1)
    np.testing.assert_allclose(np.concatenate([q, k], 1), halves(QKV[:, :3], angles), rtol=1e-5, atol=3e-5)


@pytest.mark.parametrize("context", [64, 1024, 32768])
def test_yarn_corrects_the_elements_between_its_bounds(context: int) -> None:
    def dim(rotations: int) -> float:
        return HEAD * np.log(context / (rotations * 2 * np.pi)) / (2 * np.log(THETA))

    assert rope.yarn_find_correction_dim(4, HEAD, THETA, context) == pytest.approx(dim(4))
    low, high = rope.yarn_find_correction_range(32, 1, HEAD, THETA, context)
    assert (low.value, high.value) == (max(np.floor(dim(32)), 0), min(np.ceil(dim(1)), HEAD - 1))


class Rope(nn.Module):
    """llama_rope as the only operator."""

    def __init__(self, scale: float, scaling: dict[str, Any], rotary_dim: int | None, heads: int = 1):
        self.arguments = (THETA, scale, 2, heads, scaling, rotary_dim)

    def forward(self, qkv: nn.Tensor, total_seq_len: tir.Var):
        return rope.llama_rope(qkv, total_seq_len, *self.arguments)


def exported(model: Rope, dtype: str = "float32") -> oneir.IRModule:
    spec = {"qkv": nn.spec.Tensor((2, "seq_len", 4, HEAD), dtype), "total_seq_len": nn.spec.Int()}
    return model.export_tvm({"forward": spec})[0]


@pytest.mark.parametrize("rotary_dim", [None, 8])
@pytest.mark.parametrize("scaling", [{}, LLAMA3, {"rope_type": "gptj"}], ids=lambda s: s.get("rope_type", "default"))
def test_a_model_turns_what_follows_the_tokens_before(scaling: dict[str, Any], rotary_dim: int | None) -> None:
    x = rng.standard_normal((2, 3, 4, HEAD)).astype("float32")
    vm = relax.VirtualMachine(oneir.compile(exported(Rope(0.5, scaling, rotary_dim))), oneir.cpu())
    total, n = 10, rotary_dim or HEAD
    q, k, v = (t.numpy() for t in vm["forward"](oneir.nd.array(x), oneir.runtime.ShapeTuple([total])))
    frequency = frequencies(n)
    if scaling is LLAMA3:
        frequency = np.array([stretched(f, scaling) for f in frequency])
    turn = neighbours if "gptj" in scaling.values() else halves
    expected = x.copy()
    for row in expected:
        row[:, :3, :n] = turn(row[:, :3, :n], 0.5 * np.arange(total - 3, total)[:, None] * frequency)
    np.testing.assert_allclose(np.concatenate([q, k, v], 2), expected, rtol=1e-5, atol=1e-5)


def test_positions_of_half_precision_models_are_exact() -> None:
    x = rng.standard_normal((2, 1, 4, HEAD)).astype("float16")
    vm = relax.VirtualMachine(oneir.compile(exported(Rope(1.0, {}, None), "float16")), oneir.cpu())
    q, _, _ = vm["forward"](oneir.nd.array(x), oneir.runtime.ShapeTuple([4098]))
    expected = halves(x[0, :, :2].astype("float32"), 4097 * frequencies(HEAD)[None])
    np.testing.assert_allclose(q.numpy()[0], expected, rtol=2e-3, atol=4e-3)


def test_the_published_loops() -> None:
    @T.prim_func(private=True)
    def expected(
        var_qkv: T.handle,
        var_position_map: T.handle,
        var_q: T.handle,
        var_k: T.handle,
        var_v: T.handle,
        apply_rope: T.int64,
    ):
        T.func_attr({"op_pattern": 8, "tir.noalias": True})
        seq_len = T.int32()
        offset = T.int32()
        qkv = T.match_buffer(var_qkv, (seq_len, 4, 16), "float16")
        q = T.match_buffer(var_q, (seq_len, 2, 16), "float16")
        k = T.match_buffer(var_k, (seq_len, 1, 16), "float16")
        v = T.match_buffer(var_v, (seq_len, 1, 16), "float16")
        position_map = T.match_buffer(var_position_map, (seq_len,), "int32", elem_offset=offset)
        for iters in T.grid(seq_len, 4, 16):
            with T.block("llama_fused_rope"):
                s, h, d = T.axis.remap("SSS", iters)
                freq = T.float32()
                if h < 2:
                    q[s, h, d] = T.if_then_else(
                        apply_rope > 0 and d < 8,
                        T.Let(
                            T.Cast(
                                "float16",
                                T.cos(freq) * T.Cast("float32", qkv[s, h, d])
                                + T.sin(freq)
                                * T.Cast("float32", T.if_then_else(d < 4, -qkv[s, h, d + 4], qkv[s, h, d - 4])),
                            ),
                            where={
                                freq: T.Cast("float32", position_map[s])
                                * T.float32(0.5)
                                / T.pow(T.float32(10000), T.Cast("float32", d * 2 % 8) / T.float32(8))
                            },
                        ),
                        qkv[s, h, d],
                    )
                elif h < 3:
                    freq_1 = T.float32()
                    k[s, h - 2, d] = T.if_then_else(
                        apply_rope > 0 and d < 8,
                        T.Let(
                            T.Cast(
                                "float16",
                                T.cos(freq_1) * T.Cast("float32", qkv[s, h, d])
                                + T.sin(freq_1)
                                * T.Cast("float32", T.if_then_else(d < 4, -qkv[s, h, d + 4], qkv[s, h, d - 4])),
                            ),
                            where={
                                freq_1: T.Cast("float32", position_map[s])
                                * T.float32(0.5)
                                / T.pow(T.float32(10000), T.Cast("float32", d * 2 % 8) / T.float32(8))
                            },
                        ),
                        qkv[s, h, d],
                    )
                else:
                    v[s, h - 3, d] = qkv[s, h, d]

    found = rope.llama_rope_with_position_map(THETA, 0.5, HEAD, 2, 1, "float16", {}, 8)
    assert_structural_equal(found, expected)
    longer = rope.llama_rope_with_position_map(THETA, 1.0, HEAD, 2, 1, "float16", LONG)
    assert longer.attrs["global_symbol"] == "fused_rope_longrope_scaling"
    assert [p.name for p in longer.params][-2:] == ["var_v", "ext_factors"]


def test_angles_have_names() -> None:
    s, d = tir.Var("s", "int64"), tir.Var("d", "int64")
    cos, sin, names = rope.rope_freq_default(s, d, 64, THETA, "float32")
    ((freq, angle),) = names.items()
    assert (str(cos), str(sin), freq.name) == ("T.cos(freq)", "T.sin(freq)", "freq")
    assert str(angle).startswith('T.Cast("float32", s) / T.pow(T.float32(10000.0), ')
    _, _, names = rope.switch_rope_freq_func(LLAMA3)(s, d, 64, THETA, "float32")
    assert [v.name for v in names] == ["smoothed_freq", "orig_freq"]


def test_refusals() -> None:
    with pytest.raises(InvalidValue, match=r"Unsupported RoPE scaling type: linear; expected one of gptj, llama3"):
        rope.switch_rope_freq_func({"rope_type": "linear"})
    with pytest.raises(InvalidValue, match=r"rope_scaling of type 'yarn' has no beta_fast, beta_slow"):
        rope.switch_rope_freq_func({k: v for k, v in YARN.items() if not k.startswith("beta")})
    with pytest.raises(ShapeMismatch, match=r"qkv of 2 \+ 2 \* 3 heads, found the shape \[2, seq_len, 4, 16\]"):
        exported(Rope(1.0, {}, None, heads=3))
