"""Tensor expressions as a TensorIR function: a nest of loops and a block for each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arith import Analyzer
from ..ir.container import Array
from ..ir.expr import PrimExpr, Range, Select, Var, const
from ..ir.visitor import Mapper, deep_recursion, post_order_visit
from ..runtime.error import InvalidValue, TypeMismatch, UnsupportedError
from ..tir.analysis.block_access_region import get_block_read_write_region
from ..tir.analysis.undefined_vars import undefined_vars
from ..tir.buffer import Buffer, decl_buffer
from ..tir.expr import BufferLoad, IterVar, ProducerLoad, Reduce
from ..tir.function import PrimFunc
from ..tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, LetStmt, SeqStmt, Stmt, flat_seq
from ..tir.stmt_functor import substitute
from .index_dtype import convert_index_dtype
from .tensor import ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, Tensor


def create_prim_func(ops: Sequence[Any], index_dtype_override: str | None = None) -> PrimFunc:
    """A function over the given tensors and variables, in that order; the tensors that they need in between are local.

    Every placeholder that is read must be among `ops`. `index_dtype_override` ("int32" or "int64") converts shapes and
    indices.

    Raises `TypeMismatch` for other arguments, `InvalidValue` for a placeholder that is missing, and `UnsupportedError`
    for operations that TensorIR cannot express.
    """
    items = [op.output(0) if isinstance(op, Operation) else op for op in ops]
    with deep_recursion:
        func = _Builder(items).build()
        if index_dtype_override is not None:
            func = convert_index_dtype(func, index_dtype_override)
    return func


def _levels(axes: list[IterVar]) -> list[int]:
    """The nesting level of each axis: below all axes that its range depends on."""
    known: dict[Var, int] = {}
    by_var = {iv.var: iv for iv in axes}

    def level(iv: IterVar) -> int:
        if iv.var not in known:
            assert iv.dom is not None
            needed = [v for v in (*undefined_vars(iv.dom.min), *undefined_vars(iv.dom.extent)) if v in by_var]
            known[iv.var] = max((level(by_var[v]) + 1 for v in needed), default=0)
        return known[iv.var]

    return [level(iv) for iv in axes]


class _Scope:
    """The block variables of one level, and the loops around its block.

    Axes of this level get loops; those of levels above are bound to the block variables of the level before.
    """

    def __init__(self, axes: list[IterVar], levels: list[int], level: int, outer: dict[Var, Any]):
        self.block_vars: list[IterVar] = []
        self.bindings: list[PrimExpr] = []
        self.values: dict[Var, Any] = {}
        self._loops: list[tuple[Var, Range]] = []
        if not axes:
            # A block of one element has a variable all the same.
            self.block_vars.append(IterVar(Range(0, 1), Var("vi", "int32"), IterVar.DataPar))
            self.bindings.append(const(0, "int32"))
        for iv, own in zip(axes, levels, strict=True):
            if own > level:
                continue
            assert iv.dom is not None
            if own == level:
                binding: Any = Var(iv.var.name, iv.var.dtype)
                dom = Range(substitute(iv.dom.min, outer), extent=substitute(iv.dom.extent, outer))
                self._loops.append((binding, dom))
            else:
                binding = outer[iv.var]
                dom = Range(binding, extent=const(1, iv.var.dtype))
            var = Var(f"v_{iv.var.name}", iv.var.dtype)
            self.block_vars.append(IterVar(dom, var, iv.iter_type))
            self.bindings.append(binding)
            self.values[iv.var] = var

    def loops(self, stmt: Stmt) -> Stmt:
        """The loops of this level around a statement."""
        for var, dom in reversed(self._loops):
            stmt = For(var, dom.min, dom.extent, ForKind.SERIAL, stmt)
        return stmt


class _Builder:
    def __init__(self, items: list[Any]):
        for item in items:
            if not isinstance(item, (Tensor, Var)):
                raise TypeMismatch(f"create_prim_func expects tensors and variables, found {item!r}")
        self.items = items
        self.buffers: dict[Tensor, Buffer] = {}
        self.buffer_names: dict[str, int] = {}
        self.block_names: dict[str, int] = {}
        self.allocated: list[Buffer] = []
        self.analyzer = Analyzer()
        self.attrs: dict[str, Any] = {}
        for item in items:
            if isinstance(item, Tensor):
                self.buffers[item] = decl_buffer(
                    item.shape, item.dtype, self.unique(buffer_name(item), self.buffer_names)
                )

    def unique(self, name: str, taken: dict[str, int]) -> str:
        """A name that no other buffer, or no other block, has."""
        count = taken.get(name)
        taken[name] = 0 if count is None else count + 1
        return name if count is None else self.unique(f"{name}_{count + 1}", taken)

    def build(self) -> PrimFunc:
        stmts = [self.statement(op) for op in self.operations()]
        root = Block((), (), (), "root", flat_seq(stmts), alloc_buffers=Array(self.allocated))
        params: list[Var] = []
        buffer_map: dict[Var, Buffer] = {}
        for item in self.items:
            if isinstance(item, Tensor):
                handle = Var(f"var_{self.buffers[item].name}", "handle")
                buffer_map[handle] = self.buffers[item]
                item = handle
            params.append(item)
        attrs = {"global_symbol": "main", "tir.noalias": True, **self.attrs}
        return PrimFunc(params, BlockRealize((), True, root), None, buffer_map, attrs)

    def operations(self) -> list[Operation]:
        """The operations behind the outputs, each after those that it reads."""
        order: dict[Operation, None] = {}

        def visit(op: Operation) -> None:
            if op not in order:
                for tensor in scan_inputs(op) if isinstance(op, ScanOp) else op.input_tensors:
                    visit(tensor.op)
                order[op] = None

        for item in self.items:
            if isinstance(item, Tensor):
                visit(item.op)
        return list(order)

    def buffer_of(self, tensor: Tensor) -> Buffer:
        """The buffer of a tensor: a parameter's, or local memory."""
        # Two `output(i)` objects of one operation are one tensor.
        found = next(
            (b for t, b in self.buffers.items() if t.op is tensor.op and t.value_index == tensor.value_index), None
        )
        if found is None:
            found = decl_buffer(tensor.shape, tensor.dtype, self.unique(buffer_name(tensor), self.buffer_names))
            self.allocated.append(found)
            self.buffers[tensor] = found
        return found

    def statement(self, op: Operation) -> Stmt:
        if isinstance(op, PlaceholderOp):
            if not any(isinstance(i, Tensor) and i.op is op for i in self.items):
                raise InvalidValue(
                    f"the placeholder `{op.name}` is read but not among the arguments; add it to the list"
                )
            return SeqStmt(())
        for index in self.layout_free(op):
            self.attrs.setdefault("layout_free_buffers", [])
            if index not in self.attrs["layout_free_buffers"]:
                self.attrs["layout_free_buffers"].append(index)
        if isinstance(op, ComputeOp):
            return self.compute(op)
        if isinstance(op, ExternOp):
            return self.extern(op)
        if isinstance(op, ScanOp):
            return self.scan(op)
        raise UnsupportedError(
            f"{type(op).__name__} `{op.name}` cannot become a TensorIR function; write the loop in TVMScript"
        )

    def layout_free(self, op: Operation) -> list[int]:
        """The positions of the arguments whose layout the operation leaves open."""
        tensors = op.attrs.get("layout_free_placeholders", ())
        return [i for i, item in enumerate(self.items) if any(item is t for t in tensors)]

    # -- computes --

    def compute(self, op: ComputeOp) -> Stmt:
        if isinstance(op.body[0], Reduce):
            return self.nest(op, [op.output(i) for i in range(op.num_outputs)])
        return flat_seq([self.nest(op, [op.output(i)]) for i in range(op.num_outputs)])

    def nest(self, op: ComputeOp, outputs: list[Tensor], first_axis: IterVar | None = None) -> Stmt:
        """The loops and the block that compute some outputs; `first_axis` says how the first index runs instead.

        Where the range of an axis depends on other axes, its loop stands in a block over those.
        """
        reduced = () if _reduces_nothing(op) else op.reduce_axis
        axes = [self.axis(iv, first_axis if op.axis and iv is op.axis[0] else None) for iv in (*op.axis, *reduced)]
        levels = _levels(axes)
        scopes: list[_Scope] = []
        for level in range(max(levels, default=0) + 1):
            outer = scopes[-1].values if scopes else {}
            scopes.append(_Scope(axes, levels, level, outer))
        # What is reduced over on several levels starts on the outermost of these.
        first = min((n for iv, n in zip(axes, levels, strict=True) if iv.iter_type == IterVar.CommReduce), default=0)
        stmt = self.block(op, outputs, scopes[-1], None, first == len(scopes) - 1)
        for number in range(len(scopes) - 1, 0, -1):
            stmt = self.block(op, outputs, scopes[number - 1], (number, stmt), first == number - 1)
        return stmt

    def axis(self, iv: IterVar, other: IterVar | None) -> IterVar:
        """An axis with a simplified range, or with that of another one."""
        dom = iv.dom if other is None else other.dom
        assert dom is not None
        simple = Range(self.analyzer.simplify(dom.min), extent=self.analyzer.simplify(dom.extent))
        return IterVar(simple, iv.var, iv.iter_type if other is None else other.iter_type)

    def block(
        self, op: ComputeOp, outputs: list[Tensor], scope: _Scope, inner: tuple[int, Stmt] | None, starts: bool
    ) -> Stmt:
        """The block of one level in its loops: the computation itself, or around the level that `inner` numbers.

        `starts` says whether a reduction is initialised here.
        """
        indices = Array(scope.values[iv.var] for iv in op.axis)
        buffers = [self.buffer_of(t) for t in outputs]
        bodies = [op.body[t.value_index] for t in outputs]
        init: Stmt | None = None
        if isinstance(bodies[0], Reduce) and (starts or inner is None):
            init, body = self.reduction(op, bodies[0], buffers, indices, scope.values)
            if _reduces_nothing(op):
                init, body = None, init
        elif inner is None:
            body = BufferStore(buffers[0], self.loads(bodies[0], scope.values), indices)
        else:
            body = inner[1]
        name = self.block_name(op, outputs)
        if inner is not None:
            number, body = inner
            name = f"{name}_l{number}"
        annotations = {k: v for k, v in op.attrs.items() if k != "layout_free_placeholders"}
        name = self.unique(name, self.block_names)
        block = Block(scope.block_vars, (), (), name, body, init if starts else None, annotations=annotations)
        visible = {buffer.data: buffer for buffer in self.buffers.values()}
        reads, writes = get_block_read_write_region(block, visible)
        return scope.loops(BlockRealize(scope.bindings, True, block.replace(reads=reads, writes=writes)))

    # -- recurrences --

    def scan(self, op: ScanOp) -> Stmt:
        """The first states, then a loop over the later ones, in order."""
        stmts: list[Stmt] = []
        for i, tensors in enumerate(zip(op.init, op.update, op.state_placeholder, strict=True)):
            buffer = self.buffer_of(op.output(i))
            self.buffers.update(dict.fromkeys(tensors, buffer))
        for init in op.init:
            if not isinstance(init.op, ComputeOp):
                raise UnsupportedError(f"`{op.name}`: the init and the update of a scan must be te.compute")
            stmts.append(self.nest(init.op, [init]))
        steps = [self.nest(step, outputs, op.scan_axis) for step, outputs in _scan_steps(op)]
        if len(steps) == 1:
            return flat_seq([*stmts, steps[0]])
        # All that is computed for one step comes before the next: the loops over the scan axis become one.
        loops = [loop for loop in steps if isinstance(loop, For)]
        first = loops[0]
        bodies = [substitute(loop.body, {loop.loop_var: first.loop_var}) for loop in loops]
        return flat_seq([*stmts, first.replace(body=flat_seq(bodies))])

    def block_name(self, op: ComputeOp, outputs: list[Tensor]) -> str:
        return op.name if len(outputs) == op.num_outputs else buffer_name(outputs[0])

    def reduction(
        self, op: ComputeOp, reduce: Reduce, buffers: list[Buffer], indices: Array[PrimExpr], values: dict[Var, Any]
    ) -> tuple[Stmt, Stmt]:
        """The initialisation and the update of a reduction."""
        reducer = reduce.combiner
        if reducer is None:
            raise InvalidValue(f"the reduction of {op.name} says no combiner: what combines two of its values")
        start = reduce.init or reducer.identity_element
        init = [BufferStore(b, self.loads(v, values), indices) for b, v in zip(buffers, start, strict=True)]
        lhs = [BufferLoad(b, indices) for b in buffers]
        condition = self.loads(reduce.condition, values)
        rhs = [self.loads(s, values) for s in reduce.source]
        if getattr(condition, "value", None) != 1:
            rhs = [Select(condition, r, i) for r, i in zip(rhs, reducer.identity_element, strict=True)]
        results = reducer.combine(lhs, rhs)
        if len(results) == 1:
            return init[0], BufferStore(buffers[0], results[0], indices)
        temporaries = [Var(f"v_{b.name}", b.dtype) for b in buffers]
        body: Stmt = SeqStmt([BufferStore(b, t, indices) for b, t in zip(buffers, temporaries, strict=True)])
        for temporary, result in zip(reversed(temporaries), reversed(results), strict=True):
            body = LetStmt(temporary, result, body)
        return SeqStmt(init), body

    def loads(self, expr: PrimExpr, values: dict[Var, Any]) -> PrimExpr:
        """An expression with loads of buffers in the place of loads of tensors, and block variables for the axes."""
        return self.analyzer.simplify(_Loads(self, values)(expr))

    # -- statements written by hand --

    def extern(self, op: ExternOp) -> Stmt:
        assert op.body is not None
        values: dict[Var, Any] = {}
        inputs = [self.buffer_of(t) for t in op.inputs]
        outputs = [self.buffer_of(op.output(i)) for i in range(op.num_outputs)]
        replaced: dict[Buffer, Buffer] = {}
        for placeholder, buffer in [
            *zip(op.input_placeholders, inputs, strict=True),
            *zip(op.output_placeholders, outputs, strict=True),
        ]:
            replaced[placeholder] = buffer
            values[placeholder.data] = buffer.data
            for old, new in zip(placeholder.shape, buffer.shape, strict=True):
                if isinstance(old, Var):
                    values[old] = new
        body = _ReplaceBuffers(replaced, values)(op.body)
        block = Block(
            (),
            [b[tuple(slice(None) for _ in b.shape)] for b in inputs],
            [b[tuple(slice(None) for _ in b.shape)] for b in outputs],
            self.unique(op.name, self.block_names),
            body,
        )
        return BlockRealize((), True, block)


def _reduces_nothing(op: ComputeOp) -> bool:
    """Whether a reduction axis is empty, so that the loop with the init would never run."""
    return any(getattr(iv.dom.extent, "value", None) == 0 for iv in op.reduce_axis if iv.dom is not None)


def scan_inputs(op: ScanOp) -> list[Tensor]:
    """The tensors that a scan reads besides its own states."""
    inside = {id(state.op) for state in op.state_placeholder} | {id(step) for step, _ in _scan_steps(op)}
    reads = [read for init in op.init for read in init.op.input_tensors]
    reads += [read for step, _ in _scan_steps(op) for read in step.input_tensors]
    return list(dict.fromkeys(read for read in reads if id(read.op) not in inside))


def _scan_steps(op: ScanOp) -> list[tuple[ComputeOp, list[Tensor]]]:
    """The operations that a scan computes in each step, in order: the updates, and all that depends on a state."""
    states = {id(state.op) for state in op.state_placeholder}
    updates = {id(update.op): update for update in op.update}
    changing: dict[Operation, bool] = {}

    def visit(found: Operation) -> bool:
        if id(found) in states:
            return True
        if found not in changing:
            parts = [visit(read.op) for read in found.input_tensors]
            changing[found] = any(parts) or id(found) in updates
        return changing[found]

    for update in op.update:
        visit(update.op)
    steps: list[tuple[ComputeOp, list[Tensor]]] = []
    for step in (found for found, changes in changing.items() if changes):
        if not isinstance(step, ComputeOp):
            raise UnsupportedError(f"`{op.name}`: the init and the update of a scan must be te.compute")
        outputs = [updates[id(step)]] if id(step) in updates else [step.output(i) for i in range(step.num_outputs)]
        steps.append((step, outputs))
    _check_times(op, steps)
    return steps


def _check_times(op: ScanOp, steps: list[tuple[ComputeOp, list[Tensor]]]) -> None:
    """What lies between states and updates exists for the current step only."""
    between = {id(step) for step, outputs in steps if not any(o is u for o in outputs for u in op.update)}

    for step, _ in steps:
        time = step.axis[0].var if step.axis else None

        def check(node: Any, time: Var | None = time) -> None:
            if isinstance(node, ProducerLoad) and id(node.producer.op) in between and node.indices[0] is not time:
                raise UnsupportedError(
                    f"`{op.name}`: `{node.producer.op.name}` depends on a state; write it into the update of the scan, "
                    f"or read it at the step itself, `{time}`"
                )

        for value in step.body:
            post_order_visit(value, check)


class _Loads(Mapper):
    def __init__(self, builder: _Builder, values: dict[Var, Any]):
        super().__init__()
        self.builder, self.values = builder, values

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_ProducerLoad(self, node: ProducerLoad) -> Any:
        return BufferLoad(self.builder.buffer_of(node.producer), [self.visit(i) for i in node.indices])


class _ReplaceBuffers(Mapper):
    def __init__(self, buffers: dict[Buffer, Buffer], values: dict[Var, Any]):
        super().__init__()
        self.buffers, self.values = buffers, values

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        return self.buffers.get(buffer) or self._visit_shared(buffer)


def buffer_name(tensor: Tensor) -> str:
    """The name of a tensor's buffer."""
    return tensor.op.name if tensor.op.num_outputs == 1 else f"{tensor.op.name}_v{tensor.value_index}"
