"""Decompositions of matrices and systems of equations: interpreted and compiled, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_programs import assert_same, check_exported, export, floats, function_of

import oneir
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import OneIRError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
torch.manual_seed(0)


def positive_definite(*shape: int) -> torch.Tensor:
    a = floats(*shape)
    return a @ a.mT + torch.eye(shape[-1])


L = "torch.linalg"
A, B, TALL, WIDE = positive_definite(2, 4, 4), floats(2, 4, 3), floats(2, 5, 3), floats(3, 5)
CASES: list[tuple[Any, ...]] = [
    (f"{L}.cholesky(x)", A),
    (f"{L}.cholesky(x, upper=True)", A),
    (f"{L}.cholesky_ex(x)[0]", A),
    ("torch.cholesky_solve(y, x)", A, B),
    ("torch.cholesky_inverse(x, upper=True)", A[0]),
    (f"{L}.solve_triangular(x, y, upper=False)", A, B),
    (f"{L}.solve_triangular(x, y.mT, upper=True, left=False, unitriangular=True)", A, B),
    (f"{L}.solve(x, y)", A, B),
    (f"{L}.solve(x, y)", A[0], B),
    (f"{L}.solve(x, y)", A, floats(2, 4)),
    (f"{L}.solve(x, y.mT, left=False)", A, B),
    (f"{L}.inv(x)", A),
    ("torch.inverse(x)", floats(3, 3).double()),
    (f"({L}.det(x), {L}.slogdet(x), torch.logdet(x))", A),
    (f"{L}.lu_factor(x)", TALL),
    (f"{L}.lu(x)", TALL),
    (f"{L}.lu(x)", WIDE),
    (f"{L}.lu_solve(*{L}.lu_factor(x), y)", A, B),
    (f"{L}.qr(x)", TALL),
    (f"{L}.qr(x, mode='complete')", TALL),
    (f"{L}.qr(x, mode='r')[1]", WIDE),
    (f"{L}.svdvals(x)", TALL),
    (f"(lambda u, s, v: (u @ torch.diag_embed(s) @ v, s))(*{L}.svd(x, full_matrices=False))", TALL),
    (f"[p.abs() for p in {L}.svd(x)]", TALL[0, :, :2]),
    (f"{L}.eigvalsh(x)", A),
    (f"(lambda w, v: (v @ torch.diag_embed(w) @ v.mT, w))(*{L}.eigh(x, UPLO='U'))", A),
    (f"{L}.pinv(x)", TALL),
    (f"{L}.pinv(x, atol=1.5)", WIDE),
    (f"{L}.pinv(x, hermitian=True)", A),
    (f"{L}.matrix_exp(x)", floats(2, 3, 3)),
    (f"({L}.matrix_norm(x, 2), {L}.matrix_norm(x, 'nuc'), {L}.cond(x))", TALL),
    (f"{L}.matrix_power(x, 3) + {L}.matrix_power(x, -1)", A),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_exported(case: tuple[Any, ...]):
    expression, *args = case
    check_exported(function_of(expression, len(args)), *args, tolerance=2e-4)


def test_compiled_for_batches_of_any_size():
    function = function_of(f"({L}.solve(x, y), {L}.qr(x)[1], {L}.cholesky(x))", 2)
    batch = torch.export.Dim("batch")
    program = export(function, A, B, dynamic_shapes=[{0: batch}, {0: batch}])
    machine = relax.VirtualMachine(relax.build(from_exported_program(program), "llvm"), oneir.cpu())["main"]
    for count in (2, 5):
        a, b = positive_definite(count, 4, 4), floats(count, 4, 3)
        found = [part.numpy() for part in machine(oneir.runtime.tensor(a.numpy()), oneir.runtime.tensor(b.numpy()))]
        assert_same(found, function(a, b), 1e-4, 1e-4)


def test_matrices_without_a_result_are_errors():
    program = export(function_of(f"{L}.cholesky(x)", 1), A[0])
    machine = relax.VirtualMachine(relax.build(from_exported_program(program), "llvm"), oneir.cpu())["main"]
    with pytest.raises(OneIRError, match=r"cholesky of \(4, 4\) has no result: Matrix is not positive definite"):
        machine(oneir.runtime.tensor(-np.eye(4, dtype="float32")))


@pytest.mark.parametrize(
    ("expression", "args", "message"),
    [
        (f"{L}.lu(x, pivot=False)", [A], r"factors without exchanges of rows"),
        (f"torch.view_as_real({L}.eigvals(x))", [A], r"linalg_eigvals.default, .*\n.*no converter for this operator"),
    ],
    ids=["lu", "eigenvalues"],
)
def test_refused(expression: str, args: list[torch.Tensor], message: str):
    with pytest.raises(UnsupportedError, match=message):
        from_exported_program(export(function_of(expression, len(args)), *args))
