"""Conditions, loops, scans and shapes that depend on data: programs compute what PyTorch computes.

Each is interpreted, and compiled for the virtual machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch_programs import assert_same, export, floats, fresh, integers, positive

import oneir
from oneir import relax
from oneir.relax.frontend.torch import dynamo, from_exported_program
from oneir.runtime.error import UnsupportedError
from oneir.testing import interpret

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]
torch.manual_seed(0)
ROWS = torch.export.Dim("rows", min=2, max=1000)


def check(function: Callable[..., Any], args: tuple[torch.Tensor, ...], *others: tuple[torch.Tensor, ...], **options):
    """The program that is exported for some arguments computes what the function does, of these and of others."""
    mod = from_exported_program(export(function, *fresh(args), **options))
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]
    for given in (args, *others):
        with torch.no_grad():
            expected = function(*fresh(given))
        arrays = [a.numpy() for a in fresh(given)]
        assert_same(interpret(mod, *arrays), expected)
        assert_same([part.numpy() for part in machine(*map(oneir.runtime.tensor, arrays))], expected)
    return mod


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.layer(x), lambda x: x + 1, (x,))


def nested(x):
    def positive(x):
        return torch.cond(x.max() > 1, lambda x: x + 1, lambda x: x + 2, (x,))

    return torch.cond(x.sum() > 0, positive, lambda x: x.cos(), (x,))


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x[x > 0], lambda x: x[x < 0], (x,))


def test_one_of_two_branches_is_taken():
    for function in (Gated().eval(), nested, chosen):
        check(function, (positive(2, 3),), (-positive(2, 3),))


def test_a_branch_by_the_extent_of_an_input():
    def by_rows(x):
        return torch.cond(x.shape[0] > 4, lambda x: x.sin() + x.shape[0], lambda x: x.cos(), (x,))

    mod = check(by_rows, (floats(3),), (floats(6),), dynamic_shapes=[{0: ROWS}])
    assert "if" in mod.script() and "rows" in mod.script()


def test_loops_go_on_as_long_as_data_says():
    def doubled(x):
        return while_loop(lambda y: y.sum() < 100, lambda y: (y * 2 + y.shape[0],), (x,))

    def counted(x):
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2 + i), (torch.tensor(0), x))

    check(doubled, (positive(3),), (positive(9),), (1000 * positive(2),), dynamic_shapes=[{0: ROWS}])
    check(counted, (floats(3),))


def test_a_loop_carries_integers():
    def function(x):
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (0, x))

    x = floats(3)
    assert_same(interpret(from_exported_program(export(function, x)), x.numpy())[1], x * 32)


def test_loops_of_many_steps_need_no_deep_stack():
    def counted(x):
        return while_loop(lambda i, y: i < 3000, lambda i, y: (i + 1, y + 1), (torch.tensor(0), x))

    mod = from_exported_program(export(counted, floats(2)))
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]
    count, last = machine(torch.zeros(2).numpy())
    assert count.numpy() == 3000 and last.numpy().tolist() == [3000, 3000]


def running(x, start):
    return scan(lambda total, row: (total + row, total * row), start, x, dim=0)


def products(x, y):
    return map_rows(lambda row, y: row @ y, x, y)


def test_scans_are_unrolled_or_loops():
    short = check(running, (floats(5, 3), floats(3)))
    assert "if" not in short.script()
    check(running, (floats(900, 3) / 30, floats(3)))
    check(running, (floats(5, 3), floats(3)), (floats(7, 3), floats(3)), dynamic_shapes=[{0: ROWS}, {}])
    check(products, (floats(4, 2, 3), floats(3, 5)), (floats(6, 2, 3), floats(3, 5)), dynamic_shapes=[{0: ROWS}, {}])


def taken(x, count):
    k = count.item()
    torch._check(k >= 0)
    torch._check(k <= x.shape[0])
    return x[:k] * 2, torch.zeros(k, 2) + 1


def row_at(x, place):
    k = place.item()
    torch._check(k >= 0)
    torch._check(k < 3)
    return x[k]


def written(x, place, rows):
    start = place.item()
    torch._check(start >= 0)
    torch._check(start + 2 <= 6)
    cache = x.clone()
    cache[start : start + 2] = rows
    return cache


def split_in_two(x, sizes):
    first, second = sizes.tolist()
    torch._check(first >= 0)
    torch._check(second >= 0)
    torch._check(first + second == 9)
    return torch.split(x, [first, second])


def with_masked_columns(x, mask):
    made = x.clone()
    made[:, mask] = 0
    return made


NO, SOME = torch.tensor([False, False, False, False]), torch.tensor([True, False, True, False])
DEPENDENT = [
    (torch.nonzero, (integers(6, below=2),), (torch.zeros(6, dtype=torch.int64),)),
    (lambda x: torch.where(x > 0), (floats(3, 4),)),
    (lambda x: x[x > 0] * 2, (floats(9),), (-positive(9),)),
    (lambda x, mask: (x[mask], x[:, mask[0]]), (floats(3, 4), torch.stack([SOME, NO, SOME]))),
    (lambda x, mask: torch.masked_select(x, mask), (floats(3, 4), SOME), (floats(3, 4), NO)),
    (with_masked_columns, (floats(3, 4), SOME), (floats(3, 4), NO)),
    (torch.unique, (integers(8, below=3),), (integers(8, below=2),)),
    (lambda x: torch.unique(x, return_inverse=True, return_counts=True), (integers(2, 3),)),
    (taken, (floats(9), torch.tensor(4)), (floats(9), torch.tensor(0))),
    (row_at, (floats(3, 4), torch.tensor(1)), (floats(3, 4), torch.tensor(2))),
    (written, (floats(6, 4), torch.tensor(1), floats(2, 4)), (floats(6, 4), torch.tensor(4), floats(2, 4))),
    (split_in_two, (floats(9), torch.tensor([4, 5])), (floats(9), torch.tensor([9, 0]))),
    (lambda x, times: torch.repeat_interleave(x, times), (floats(3), torch.tensor([4, 0, 2]))),
    (lambda x, times: torch.repeat_interleave(x, times, 1, output_size=6), (floats(2, 2), torch.tensor([4, 2]))),
]


@pytest.mark.parametrize("case", DEPENDENT, ids=range(len(DEPENDENT)))
def test_shapes_that_depend_on_data(case):
    check(*case)


EXTENTS = torch.export.Dim("extents", min=8, max=100)
OF_EXTENTS = [
    (lambda x: x * x.shape[0] ** -0.5 + x.shape[0] / 3, EXTENTS),
    (lambda x: x * torch.sym_sqrt(x.shape[0]), EXTENTS),
    (lambda x: nn.functional.pad(x, (0, -x.shape[0] % 8)), EXTENTS),
    (lambda x: (x.roll(2, 0), x.flip(0), torch.diff(x)), EXTENTS),
    (lambda x: torch.zeros(2 * x.shape[0] + 3) + x.sum(), EXTENTS),
    (lambda x: x.chunk(2, 0), 2 * torch.export.Dim("half", min=4, max=50)),
    (lambda x: x.reshape(x.shape[0] // 4, 4).mean(1), 4 * torch.export.Dim("quarter", min=2, max=25)),
]


@pytest.mark.parametrize("case", OF_EXTENTS, ids=range(len(OF_EXTENTS)))
def test_numbers_that_extents_tell(case):
    function, extents = case
    check(function, (floats(12),), (floats(16),), dynamic_shapes=[{0: extents}])


def test_numbers_that_are_only_computed_with_stay_tensors():
    mod = check(lambda x, n: x * n.item(), (floats(3), torch.tensor(4)))
    assert "tensor_to_shape" not in mod.script()


def test_conditions_and_loops_in_compiled_models():
    torch._dynamo.reset()

    def function(x):
        y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() + 1, (x,))
        return while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y * 2), (torch.tensor(0), y))

    for x in (positive(3), -positive(3)):
        assert_same(torch.compile(function, backend=dynamo.backend)(x), function(x))


class Drawn(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: torch.bernoulli(x), lambda x: x.cos(), (x,))


class Sinking(nn.Module):
    def forward(self, x):
        return scan(lambda total, row: (total + row, torch.bernoulli(row)), x[0], x, dim=0)


@pytest.mark.parametrize("model", [Drawn(), Sinking()], ids=lambda model: type(model).__name__)
def test_what_is_refused_in_a_part_is_named_with_the_line_of_the_whole(model):
    program = torch.export.export(model, (torch.rand(3, 4),))
    with pytest.raises(UnsupportedError, match=r"bernoulli.default, from .*test_control_flow.py:\d+\n.*random numbers"):
        from_exported_program(program)
