"""Attention of many shapes beside PyTorch's: `OMP_NUM_THREADS=1 python -m benchmarks.attention --threads 1`.

Each row is one shape, timed in turns with `scaled_dot_product_attention` of the same tensors, which may lie as PyTorch
likes them best (heads before rows); ours lie as layers compute them (rows before heads). GFLOP/s count both products in
full, causal ones in half. `--write-docs` draws them into docs/speed.md.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch

import oneir
from benchmarks.measure import interleaved
from benchmarks.page import draw_bars, write_section
from oneir import relax
from oneir.relax import op

ABOUT_AS_GOOD = 0.5
"""The part of the best that no shape may be below."""


@dataclass(frozen=True)
class Shape:
    """An attention: batch, queries, keys, heads of queries and of keys, the length of a head."""

    name: str
    batch: int
    queries: int
    keys: int
    heads: int
    size: int
    kv_heads: int | None = None
    dtype: str = "float32"
    causal: bool = False
    bias: bool = False


GRID = (
    Shape("SegFormer, first stage", 1, 16384, 256, 1, 32),
    Shape("SegFormer, second stage", 1, 4096, 256, 2, 32),
    Shape("SegFormer, last stage", 1, 256, 256, 8, 32),
    Shape("BERT", 1, 128, 128, 12, 64),
    Shape("BERT, mask", 1, 128, 128, 12, 64, bias=True),
    Shape("ViT", 1, 197, 197, 12, 64),
    Shape("DINOv2, small", 1, 257, 257, 6, 64),
    Shape("Swin, windows", 64, 49, 49, 3, 32, bias=True),
    Shape("Whisper, tiny", 1, 1500, 1500, 6, 64),
    Shape("U-Net, 40", 1, 4096, 4096, 2, 40),
    Shape("U-Net, cross", 1, 4096, 77, 8, 40),
    Shape("U-Net, 80", 1, 1024, 1024, 8, 80),
    Shape("long heads", 1, 256, 256, 8, 128),
    Shape("short heads", 1, 512, 512, 8, 16),
    Shape("causal", 1, 1024, 1024, 12, 64, causal=True),
    Shape("causal, one head", 1, 2048, 2048, 1, 64, causal=True),
    Shape("causal, grouped", 1, 512, 512, 16, 64, kv_heads=4, causal=True),
    Shape("16 queries", 1, 16, 2048, 12, 64),
    Shape("4 queries", 1, 4, 2048, 12, 64),
    Shape("decode", 1, 1, 2048, 12, 64),
    Shape("decode, grouped", 1, 1, 2048, 32, 128, kv_heads=8),
    Shape("decode, one head", 1, 1, 16384, 1, 64),
    Shape("decode, batch", 8, 1, 512, 12, 64),
    Shape("ViT, bfloat16", 1, 197, 197, 12, 64, dtype="bfloat16"),
    Shape("Whisper, bfloat16", 1, 1500, 1500, 6, 64, dtype="bfloat16"),
    Shape("decode, bfloat16", 1, 1, 2048, 12, 64, dtype="bfloat16"),
    Shape("ViT, float16", 1, 197, 197, 12, 64, dtype="float16"),
    Shape("decode, float16", 1, 1, 2048, 12, 64, dtype="float16"),
)


def graph(shape: Shape) -> oneir.ir.IRModule:
    """A graph of one attention; tensors are (batch, rows, heads, size)."""
    kv_heads = shape.kv_heads or shape.heads
    shapes = [
        (shape.batch, shape.queries, shape.heads, shape.size),
        (shape.batch, shape.keys, kv_heads, shape.size),
        (shape.batch, shape.keys, kv_heads, shape.size),
    ]
    if shape.bias:
        shapes.append((shape.batch, 1, 1, shape.keys))
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, shape.dtype)) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            causal = "TopLeft" if shape.causal else None
            q, k, v = params[:3]
            bias = params[3] if shape.bias else None
            output = builder.emit_output(op.nn.attention(q, k, v, bias, causal_mask=causal))
        builder.emit_func_output(output)
    return builder.get()


def contest(shape: Shape, rounds: int) -> tuple[float, float, float]:
    """Our seconds and PyTorch's, and the largest difference."""
    rng = np.random.default_rng(0)
    mod = graph(shape)
    numpy_dtype = ml_dtypes.bfloat16 if shape.dtype == "bfloat16" else shape.dtype
    extents = [[e.value for e in p.struct_info.shape.values] for p in mod["main"].params]
    wide = [rng.standard_normal(e).astype("float32") for e in extents]
    arrays = [a.astype(numpy_dtype) for a in wide]
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    ours = [oneir.runtime.tensor(a) for a in arrays]
    theirs = [torch.from_numpy(a.astype("float32")).to(getattr(torch, shape.dtype)) for a in arrays]
    q, k, v = (t.permute(0, 2, 1, 3).contiguous() for t in theirs[:3])
    mask = theirs[3] if shape.bias else None
    grouped = shape.kv_heads is not None

    def sdpa() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=shape.causal, enable_gqa=grouped
        )

    main = machine["main"]
    with torch.inference_mode():
        found = main(*ours).numpy().astype("float32").transpose(0, 2, 1, 3)
        difference = float(np.abs(found - sdpa().float().numpy()).max())
        seconds = interleaved({"ours": lambda: main(*ours), "torch": sdpa}, rounds)
    return seconds["ours"], seconds["torch"], difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="shapes whose names contain this")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write-docs", action="store_true", help="draw the speeds into docs/speed.md")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.threads != oneir.runtime.pool.num_threads():
        raise SystemExit(f"start with OMP_NUM_THREADS={options.threads}, which says how many threads OneIR has")
    print(f"{'':26} {'shape':>34} {'ms':>8} {'GFLOP/s':>8} {'PyTorch':>8} {'time of':>8} {'differ by':>9}")
    behind = 0
    speeds: dict[str, dict[str, float]] = {"OneIR": {}, "PyTorch": {}}
    for shape in GRID:
        if options.only not in shape.name:
            continue
        ours, theirs, difference = contest(shape, options.rounds)
        work = 4 * shape.batch * shape.heads * shape.queries * shape.keys * shape.size / (1 + shape.causal) / 1e9
        behind += ours > theirs / ABOUT_AS_GOOD
        speeds["OneIR"][shape.name], speeds["PyTorch"][shape.name] = work / ours, work / theirs
        kind = f"{shape.batch}x{shape.heads}x{shape.queries}x{shape.keys}x{shape.size} {shape.dtype}"
        print(
            f"{shape.name:26} {kind:>34} {ours * 1e3:8.3f} {work / ours:8.1f} {work / theirs:8.1f} "
            f"{ours / theirs:8.2f} {difference:9.1e}",
            flush=True,
        )
    print(f"below half of the best: {behind}")
    if options.write_docs:
        values = {name: list(found.values()) for name, found in speeds.items()}
        shown = draw_bars(list(speeds["OneIR"]), values, "GFLOP/s", "attention.png")
        counted = f"below half of PyTorch's: {behind} of {len(speeds['OneIR'])}"
        write_section("benchmarks.attention --write-docs", f"Threads: {options.threads}; {counted}.\n\n{shown}")


if __name__ == "__main__":
    main()
