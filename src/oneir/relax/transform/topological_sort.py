"""TopologicalSort: another order of the bindings in dataflow blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.error import InvalidValue
from ..expr import Binding, BindingBlock, DataflowBlock, Expr, Function, Var
from ..expr_functor import PyExprMutator, PyExprVisitor
from .pass_base import FunctionPass

Place = Var | str
"""A variable; or one of the ends of a function: where its parameters come from and where its result goes."""
INPUT, OUTPUT = "input", "output"


class TopologicalSort(FunctionPass):
    """Sorts bindings: "depth-first" or "breadth-first", "from-inputs" or "from-outputs" of the function.

    From inputs, a binding comes as early as what it uses allows; from outputs, as late as its uses allow. Raises
    `InvalidValue` for another `order` or `direction`.
    """

    order: str = "depth-first"
    direction: str = "from-inputs"

    def __post_init__(self) -> None:
        if self.order not in ("depth-first", "breadth-first"):
            raise InvalidValue(f"TopologicalSort: order is 'depth-first' or 'breadth-first', found {self.order!r}")
        if self.direction not in ("from-inputs", "from-outputs"):
            raise InvalidValue(
                f"TopologicalSort: direction is 'from-inputs' or 'from-outputs', found {self.direction!r}"
            )

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Sorter(self.order == "depth-first", self.direction == "from-inputs").visit_expr(func)


class _Dependencies(PyExprVisitor):
    """Who uses whom in a function, in the order of the program."""

    def __init__(self) -> None:
        self.users: dict[Place, list[Place]] = {}
        self.requirements: dict[Place, list[Place]] = {}
        self.defined: list[Var] = []
        self.current: Place = OUTPUT
        self.functions: set[Var] = set()

    @staticmethod
    def of(func: Function) -> _Dependencies:
        found = _Dependencies()
        found.visit_expr(func)
        defined = found.defined
        # What uses nothing comes from the inputs, and so do variables of the function around this one; what nothing
        # uses goes to the outputs. So everything is reached.
        for place in [p for p in (*defined, *found.users) if p not in found.requirements and p != INPUT]:
            found.add(INPUT, place)
        unused = [v for v in defined if v not in found.users]
        for var in unused:
            found.users[var] = [OUTPUT]
        found.requirements[OUTPUT] = [*unused, *found.requirements.get(OUTPUT, ())]
        return found

    def add(self, used: Place, user: Place) -> None:
        self.users.setdefault(used, []).append(user)
        self.requirements.setdefault(user, []).append(used)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.add(INPUT, param)
        self.visit_expr(op.body)

    def visit_binding(self, binding: Binding) -> None:
        outer, self.current = self.current, binding.var
        if isinstance(binding.value, Function):
            self.functions.add(binding.var)
        super().visit_binding(binding)
        self.functions.discard(binding.var)
        self.current = outer

    def visit_var_(self, op: Var) -> None:
        # A function that calls itself does not wait for itself.
        if op not in self.functions:
            self.add(op, self.current)

    visit_dataflow_var_ = visit_var_

    def visit_var_def_(self, var: Var) -> None:
        self.defined.append(var)


class _Sorter(PyExprMutator):
    def __init__(self, depth_first: bool, from_inputs: bool):
        self.depth_first, self.from_inputs = depth_first, from_inputs
        self.next: dict[Place, list[Place]] = {}
        self.before: dict[Place, list[Place]] = {}

    def visit_function_(self, op: Function) -> Expr:
        outer = self.next, self.before
        found = _Dependencies.of(op)
        if self.depth_first:
            # The first of several users is to be on top of the stack.
            found.users = {used: users[::-1] for used, users in found.users.items()}
        edges = found.users, found.requirements
        self.next, self.before = edges if self.from_inputs else edges[::-1]
        func = super().visit_function_(op)
        self.next, self.before = outer
        return func

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        bindings = self._sorted(block.bindings)
        if bindings != list(block.bindings):
            block = block.replace(bindings=bindings)
        return super().visit_dataflow_block_(block)

    def _sorted(self, bindings: Iterable[Binding]) -> list[Binding]:
        remaining = {binding.var: binding for binding in bindings}
        missing = {place: len(set(before)) for place, before in self.before.items()}
        places: deque[Place] = deque([INPUT if self.from_inputs else OUTPUT])
        visited: set[Place] = set()
        found: list[Binding] = []
        while places:
            place = places.pop() if self.depth_first else places.popleft()
            if place in visited:
                continue
            visited.add(place)
            if place in remaining:
                found.append(remaining.pop(place))
            following = self.next.get(place, [])
            for other in set(following):
                missing[other] -= 1
            places.extend(p for p in following if not missing[p] and p not in visited)
        return found if self.from_inputs else found[::-1]
