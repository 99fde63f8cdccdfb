"""Modules that are built and measured by processes of their own, as tuners do: a pool of workers, and `multiprocessing`."""

import multiprocessing

import numpy as np
import tvm
from tvm import tir
from tvm.contrib import utils
from tvm.contrib.popen_pool import PopenPoolExecutor, StatusKind
from tvm.script import tir as T


@tvm.script.ir_module
class Product:
    @T.prim_func
    def main(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32"), C: T.Buffer((32, 32), "float32")):
        for i, j, k in T.grid(32, 32, 32):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] += A[vi, vk] * B[vk, vj]


def candidate(tile):
    sch = tir.Schedule(Product)
    i, j, k = sch.get_loops(sch.get_block("C"))
    outer, inner = sch.split(j, factors=[None, tile])
    sch.reorder(i, outer, k, inner)
    sch.vectorize(inner)
    return sch.mod


def build(text, path):
    tvm.compile(tvm.script.from_source(text), target="llvm").export_library(path)
    return path


def error_of(path):
    values = [np.random.rand(32, 32).astype("float32") for _ in range(2)]
    a, b, c = (tvm.runtime.tensor(v) for v in (*values, np.zeros((32, 32), "float32")))
    tvm.runtime.load_module(path)["main"](a, b, c)
    return float(np.abs(c.numpy() - values[0] @ values[1]).max())


def fails(_):
    raise ValueError("this candidate cannot be built")


if __name__ == "__main__":
    temp = utils.tempdir()
    tiles = [4, 8, 32]
    texts = [candidate(tile).script() for tile in tiles]
    paths = [temp.relpath(f"tile{tile}.so") for tile in tiles]
    with PopenPoolExecutor(max_workers=2, timeout=300) as pool:
        futures = [pool.submit(build, text, path) for text, path in zip(texts, paths, strict=True)]
        assert [future.result() for future in futures] == paths
        (failed,) = pool.map_with_error_catching(fails, [0])
        assert failed.status == StatusKind.EXCEPTION and "cannot be built" in str(failed.value)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        errors = pool.map(error_of, paths)
    assert max(errors) < 1e-4, errors
