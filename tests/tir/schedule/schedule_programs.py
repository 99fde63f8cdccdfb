"""Programs that several tests schedule."""

from __future__ import annotations

from oneir.script import tir as T


@T.prim_func
def matmul(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 10), "float32"), C: T.Buffer((8, 10), "float32")):
    for i, j, k in T.grid(8, 10, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def chain(A: T.Buffer((16, 8), "float32"), C: T.Buffer((16, 8), "float32")):
    B = T.alloc_buffer((16, 8), "float32")
    for i, j in T.grid(16, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(16, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)


@T.prim_func
def symbolic(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, T.int64(8)), "float32")
    B = T.match_buffer(b, (n, T.int64(8)), "float32")
    for i, j in T.grid(n, T.int64(8)):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + T.float32(1)


@T.prim_func
def diamond(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
    B = T.alloc_buffer((6, 8))
    C1 = T.alloc_buffer((6, 8))
    C2 = T.alloc_buffer((6, 8))
    for i, j in T.grid(6, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(6, 8):
        with T.block("C1"):
            vi, vj = T.axis.remap("SS", [i, j])
            C1[vi, vj] = B[vi, vj] + T.float32(1)
    for i, j in T.grid(6, 8):
        with T.block("C2"):
            vi, vj = T.axis.remap("SS", [i, j])
            C2[vi, vj] = B[vi, vj] * B[vi, vj]
    for i, j in T.grid(6, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C1[vi, vj] + C2[vi, vj]


@T.prim_func
def softmax(A: T.Buffer((4, 6), "float32"), S: T.Buffer((4, 6), "float32")):
    M = T.alloc_buffer((4,))
    E = T.alloc_buffer((4, 6))
    D = T.alloc_buffer((4,))
    for i, k in T.grid(4, 6):
        with T.block("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.min_value("float32")
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, j in T.grid(4, 6):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = T.exp(A[vi, vj] - M[vi])
    for i, k in T.grid(4, 6):
        with T.block("D"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = D[vi] + E[vi, vk]
    for i, j in T.grid(4, 6):
        with T.block("S"):
            vi, vj = T.axis.remap("SS", [i, j])
            S[vi, vj] = E[vi, vj] / D[vi]


@T.prim_func
def pooling(A: T.Buffer((2, 6, 6), "float32"), R: T.Buffer((2, 3, 3), "float32")):
    P = T.alloc_buffer((2, 8, 8))
    Q = T.alloc_buffer((2, 3, 3))
    for c, i, j in T.grid(2, 8, 8):
        with T.block("P"):
            vc, vi, vj = T.axis.remap("SSS", [c, i, j])
            P[vc, vi, vj] = T.if_then_else(
                vi >= 1 and vi < 7 and vj >= 1 and vj < 7, A[vc, vi - 1, vj - 1], T.float32(-100)
            )
    for c, i, j, k, l in T.grid(2, 3, 3, 3, 3):
        with T.block("Q"):
            vc, vi, vj, vk, vl = T.axis.remap("SSSRR", [c, i, j, k, l])
            with T.init():
                Q[vc, vi, vj] = T.min_value("float32")
            Q[vc, vi, vj] = T.max(Q[vc, vi, vj], P[vc, vi * 2 + vk, vj * 2 + vl])
    for c, i, j in T.grid(2, 3, 3):
        with T.block("R"):
            vc, vi, vj = T.axis.remap("SSS", [c, i, j])
            R[vc, vi, vj] = T.max(Q[vc, vi, vj], T.float32(0))


@T.prim_func
def conv2d(A: T.Buffer((6, 5, 2), "float32"), W: T.Buffer((3, 2, 2, 4), "float32"), C: T.Buffer((4, 4, 4), "float32")):
    for i, j, o, k, l, c in T.grid(4, 4, 4, 3, 2, 2):
        with T.block("C"):
            vi, vj, vo, vk, vl, vc = T.axis.remap("SSSRRR", [i, j, o, k, l, c])
            with T.init():
                C[vi, vj, vo] = T.float32(0)
            C[vi, vj, vo] = C[vi, vj, vo] + A[vi + vk, vj + vl, vc] * W[vk, vl, vc, vo]


@T.prim_func
def padded_conv(A: T.Buffer((6, 4), "float32"), W: T.Buffer((3, 3), "float32"), R: T.Buffer((6, 4), "float32")):
    P = T.alloc_buffer((8, 6))
    C = T.alloc_buffer((6, 4))
    for i, j in T.grid(8, 6):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = T.if_then_else(vi >= 1 and vi < 7 and vj >= 1 and vj < 5, A[vi - 1, vj - 1], T.float32(0))
    for i, j, k, l in T.grid(6, 4, 3, 3):
        with T.block("C"):
            vi, vj, vk, vl = T.axis.remap("SSRR", [i, j, k, l])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + P[vi + vk, vj + vl] * W[vk, vl]
    for i, j in T.grid(6, 4):
        with T.block("R"):
            vi, vj = T.axis.remap("SS", [i, j])
            R[vi, vj] = T.max(C[vi, vj], T.float32(0))


@T.prim_func
def symbolic_chain(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, T.int64(8)), "float32")
    C = T.match_buffer(c, (n, T.int64(8)), "float32")
    B = T.alloc_buffer((n, T.int64(8)), "float32")
    for i, j in T.grid(n, T.int64(8)):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(n, T.int64(8)):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)


@T.prim_func
def symbolic_matmul(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, T.int64(6)), "float32")
    B = T.match_buffer(b, (T.int64(6), T.int64(5)), "float32")
    C = T.match_buffer(c, (n, T.int64(5)), "float32")
    for i, j, k in T.grid(n, T.int64(5), T.int64(6)):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
