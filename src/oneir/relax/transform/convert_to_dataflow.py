"""ConvertToDataflow: runs of bindings without side effects become dataflow blocks."""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext, Sequential
from ..analysis.purity import is_impure_call
from ..expr import Binding, BindingBlock, Call, DataflowBlock, Expr, Function, If, SeqExpr
from ..expr_functor import PyExprMutator
from ..normalize import merge_blocks
from .canonicalize_bindings import CanonicalizeBindings
from .pass_base import FunctionPass


class ConvertToDataflow(ModulePass):
    """Makes dataflow blocks of at least `min_size` bindings, and lets those that are there grow."""

    min_size: int = 2

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        # What is not used outside of its new block becomes a DataflowVar.
        return Sequential([_MakeBlocks(self.min_size), CanonicalizeBindings()]).transform_module(mod, ctx)


class _MakeBlocks(FunctionPass, name="ConvertToDataflow"):
    min_size: int

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Extractor(self.min_size).visit_expr(func)


def _is_dataflow(binding: Binding) -> bool:
    value = binding.value
    return not isinstance(value, If) and not (isinstance(value, Call) and is_impure_call(value))


class _Extractor(PyExprMutator):
    def __init__(self, min_size: int):
        self.min_size = min_size

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        seq = super().visit_seq_expr_(op)
        assert isinstance(seq, SeqExpr)
        blocks = self._blocks(seq)
        same = len(blocks) == len(seq.blocks) and all(
            type(new) is type(old) and new.bindings == old.bindings for new, old in zip(blocks, seq.blocks, strict=True)
        )
        return seq if same else SeqExpr(blocks, seq.body, span=seq.span)

    def _blocks(self, seq: SeqExpr) -> list[BindingBlock]:
        blocks: list[BindingBlock] = []
        run: list[Binding] = []
        keep = False  # whether a dataflow block that was there is part of the run

        def end_run() -> None:
            nonlocal run, keep
            blocks.append((DataflowBlock if keep or len(run) >= self.min_size else BindingBlock)(run))
            run, keep = [], False

        for block in seq.blocks:
            if isinstance(block, DataflowBlock):
                run.extend(block.bindings)
                keep = True
                continue
            for binding in block.bindings:
                if _is_dataflow(binding):
                    run.append(binding)
                else:
                    end_run()
                    blocks.append(BindingBlock([binding]))
        end_run()
        return merge_blocks(blocks)
