"""Backends for `torch.compile`: the subgraphs that TorchDynamo finds become native programs.

    compiled = torch.compile(model.eval(), backend="oneir")
    with torch.no_grad():
        y = compiled(x)

What is compiled is for inference. Arguments and weights are read where they are; nothing is copied but tensors with
gaps. Weights are arguments of the programs, so changes of them are seen; with `options={"freeze": True}` they are
constants, laid out anew for the machine while compiling, and changes are not seen, except those of weights that the
model itself writes into. Extents that vary from call to call (`dynamic=True`, or what PyTorch found to vary) are
symbolic. What a model writes into its buffers and arguments is written by PyTorch when the program has run. Results
have the dimensions in the order in memory that PyTorch gives them.

An operator that cannot be imported is an error; with `options={"fallback": True}`, PyTorch runs its subgraph, and a
warning says so.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ir.expr import PrimExpr
from ....ir.module import IRModule
from ....ir.transform import Pass
from ....runtime.device import cpu, cuda
from ....runtime.error import InvalidValue, UnsupportedError
from ....runtime.object import ShapeTuple
from ....runtime.once import once
from ....runtime.tensor import Tensor
from ....runtime.vm import VirtualMachine
from ... import op
from ...expr import Expr, ShapeExpr
from ...expr import Tuple as GraphTuple
from ...pipeline import get_pipeline
from ...struct_info import ShapeStructInfo
from ...vm_build import build
from . import operators
from .aten import AtenImporter, is_example
from .fx_translator import TorchFXImporter
from .importer import check_dense, share
from .registry import find_converter

_ADVICE = (
    "What to do: write the model with operators that can be imported; take the part with them out by "
    "torch.compiler.disable; or let PyTorch run such subgraphs, with torch.compile(model, "
    'backend="oneir", options={"fallback": True}).'
)
_OPTIONS = ("fallback", "freeze")


def relax_dynamo(pipeline: Pass | str | None = None) -> Callable[..., Any]:
    """A backend for `torch.compile` that applies a pipeline (a pass, or its registered name) before building."""
    return functools.partial(backend, pipeline=pipeline)


def backend(
    graph_module: Any,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
    pipeline: Pass | str | None = None,
) -> Callable[..., Any]:
    """The function that computes one subgraph; `torch.compile(model, backend="oneir")` calls it for each.

    `mode` is PyTorch's own and means nothing here. Raises `UnsupportedError`, which names all operators that cannot be
    imported and the lines that they come from, and where gradients would be needed.
    """
    from torch._dynamo.backends.common import aot_autograd

    given = dict(options or {})
    if unknown := sorted(given.keys() - set(_OPTIONS)):
        raise InvalidValue(f"unknown options {unknown} of the backend; options are {', '.join(_OPTIONS)}")
    broken: dict[Any, Any] = {}
    while True:
        compiler = _Compiler(example_inputs, pipeline, bool(given.get("freeze")))
        compile_all = aot_autograd(
            fw_compiler=_raise_for_training,
            inference_compiler=compiler,
            decompositions={**_unknown_operators(), **broken},
        )
        try:
            _check_inputs(example_inputs)
            return compile_all(graph_module, example_inputs)
        except UnsupportedError as error:
            more = operators.decompositions(compiler.decomposable - broken.keys())
            broken |= more
            if not more:
                if not given.get("fallback"):
                    raise
                warnings.warn(f"PyTorch runs this subgraph: {error}", RuntimeWarning, stacklevel=2)
                return graph_module.forward


@once
def _unknown_operators() -> dict[Any, Any]:
    """PyTorch's decompositions of the operators that have no converter."""
    from torch.export import default_decompositions

    known = default_decompositions()
    return {t: d for t, d in known.items() if find_converter(*operators.name_of(t)) is None}


def _check_inputs(example_inputs: Sequence[Any]) -> None:
    """Raises `UnsupportedError` for tensors that are not dense, or on devices for which nothing is compiled."""
    for i, x in enumerate(example_inputs):
        if hasattr(x, "device"):
            check_dense(x)
            if x.device.type not in ("cpu", "cuda"):
                raise UnsupportedError(
                    f"input {i} of the subgraph, of shape {list(x.shape)}, is on the device {x.device}; the backend "
                    "compiles for cpu and cuda: move the model and its inputs there, with .to('cpu')"
                )


def _raise_for_training(graph_module: Any, example_inputs: Sequence[Any]) -> Any:
    raise UnsupportedError(
        "the backend computes no gradients: call the compiled model under torch.no_grad() or torch.inference_mode(), "
        "or call model.requires_grad_(False) before"
    )


class _Compiler:
    """Compiles the functional graph of ATen's operators that AOTAutograd makes of a subgraph; weights are inputs."""

    def __init__(self, example_inputs: Sequence[Any], pipeline: Pass | str | None, freeze: bool):
        self.pipeline = pipeline
        self.device = device_from_inputs(example_inputs)
        self.frozen = {i: x for i, x in enumerate(example_inputs) if freeze and type(x).__name__ == "Parameter"}
        self.count = len(example_inputs)
        self.decomposable: set[Any] = set()

    def __call__(self, graph_module: Any, example_inputs: Sequence[Any]) -> Any:
        from torch.utils._python_dispatch import _disable_current_modes

        importer = _SubgraphImporter(graph_module, _without_written(self.frozen, graph_module, self.count))
        try:
            # Weights are read as real tensors, not as the fake ones that PyTorch traces with.
            with _disable_current_modes():
                mod = importer.run()
        finally:
            self.decomposable = importer.decomposable()
        return _program(mod, importer.passed, importer.kinds, self.device, self.pipeline)


def _without_written(frozen: Mapping[int, Any], graph_module: Any, count: int) -> Mapping[int, Any]:
    """The weights that may be constants: those that the graph, which has `count` inputs, does not write into."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None or sum(node.op == "placeholder" for node in graph_module.graph.nodes) != count:
        # Where inputs share memory, AOTAutograd replaces them by others.
        return {}
    return {i: weight for i, weight in frozen.items() if not metadata.input_info[i].mutates_data}


class _SubgraphImporter(AtenImporter):
    """Imports one subgraph; `frozen` has the inputs that become constants, by the index of their placeholder."""

    model_kind = "subgraph"
    advice = _ADVICE

    def __init__(self, graph_module: Any, frozen: Mapping[int, Any]):
        super().__init__(graph_module)
        self.frozen = frozen
        # The indices of the placeholders that are parameters.
        self.passed: list[int] = []
        # What each result is: "tensor", "number", or "known", with its value.
        self.kinds: list[tuple[str, Any]] = []

    def run(self) -> IRModule:
        nodes = list(self.graph_module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        for i, node in enumerate(placeholders):
            if i in self.frozen:
                self.env[node] = self.shared_constant(self.frozen[i])
        inputs = self.without_known_numbers([node for node in placeholders if node not in self.env])
        self.read_inputs(inputs)
        names = {var.name for var in self.inputs}
        self.passed = [i for i, node in enumerate(placeholders) if i not in self.frozen and node.name in names]
        with self.block_builder.function("main", self.inputs):
            output: Any = None
            with self.body():
                self.assert_inputs(inputs)
                for node in nodes:
                    if node.op == "output":
                        values = self.results_of(node)
                        self.report()
                        output = self.result(GraphTuple(self.results(values, node.args[0])))
                    elif node.op != "placeholder":
                        self.convert(node)
            self.block_builder.emit_func_output(output)
        return self.finished()

    def without_known_numbers(self, nodes: list[Any]) -> list[Any]:
        """The inputs without integers that are extents of a tensor: programs of tensors alone are native."""
        tensors = [node for node in nodes if is_example(node.meta.get("val"))]
        extents = {e for node in tensors for e in self.extents(node.meta["val"]) if isinstance(e, PrimExpr)}
        kept = []
        for node in nodes:
            number = node.meta.get("val")
            if type(number).__name__ == "SymInt" and (symbol := self.symbols.expression(number)) in extents:
                self.env[node] = symbol
            else:
                kept.append(node)
        return kept

    def results(self, values: Sequence[Any], nodes: Sequence[Any]) -> list[Expr]:
        """What the function returns: tensors, and symbolic integers as shapes.

        A tensor whose dimensions PyTorch has in another order in memory is returned in that order, and permuted back.
        """
        made: list[Expr] = []
        for value, node in zip(values, nodes, strict=True):
            if isinstance(value, PrimExpr):
                self.kinds.append(("number", None))
                made.append(ShapeExpr([value]))
            elif isinstance(value, Expr):
                order = _memory_order(node.meta.get("val"))
                self.kinds.append(("tensor", None if order is None else [order.index(i) for i in range(len(order))]))
                made.append(value if order is None else self.emit(op.permute_dims(value, order)))
            else:
                self.kinds.append(("known", value))
        return made


def _memory_order(example: Any) -> list[int] | None:
    """The dimensions of a tensor from the largest stride to the smallest; None if that is their own order."""
    if not is_example(example):
        return None
    # The stride of a dimension of extent 1 means nothing; symbolic extents have the size of the example.
    extents, strides = ([_hint(v) for v in values] for values in (example.shape, example.stride()))
    moved = [i for i, extent in enumerate(extents) if extent != 1]
    by_stride = iter(sorted(moved, key=lambda i: -strides[i]))
    order = [next(by_stride) if i in moved else i for i in range(len(extents))]
    return None if order == sorted(order) else order


def _hint(value: Any) -> int:
    node = getattr(value, "node", None)
    return int(value) if node is None else node.hint if node.hint is not None else 1 << 62


def _program(
    mod: IRModule, passed: Sequence[int], kinds: Sequence[tuple[str, Any]], device: Any, pipeline: Pass | str | None
) -> Callable[..., Any]:
    """The native program of a subgraph, as a function of a list of PyTorch's tensors and integers."""
    import torch

    if pipeline is not None:
        mod = (get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline)(mod)
    if device is not None and device.type == "cuda":
        target, place = "cuda", cuda(device.index or 0)
    else:
        target, place = llvm_target(), cpu()
    run = VirtualMachine(build(mod, target), place)["main"]
    takes_number = [isinstance(var.struct_info, ShapeStructInfo) for var in mod["main"].params]

    def call(args: list[Any]) -> tuple[Any, ...]:
        given = (args[i] for i in passed)
        made = run(
            *(ShapeTuple([int(v)]) if number else share(v) for v, number in zip(given, takes_number, strict=True))
        )
        results = iter(made)
        return tuple(value if kind == "known" else _as_torch(next(results), value) for kind, value in kinds)

    def _as_torch(result: Any, order: Sequence[int] | None) -> Any:
        if not isinstance(result, Tensor):
            return int(result[0])
        made = torch.from_dlpack(result)
        return made if order is None else made.permute(*order)

    # PyTorch then passes the arguments as one list.
    vars(call)["_boxed_call"] = True
    return call


def device_from_inputs(example_inputs: Sequence[Any]) -> Any:
    """The device of the first input that has one; None if none has."""
    return next((x.device for x in example_inputs if hasattr(x, "device")), None)


def llvm_target() -> str:
    """The target of subgraphs on processors: the machine that they are compiled on."""
    return "llvm"


def dynamo_capture_subgraphs(model: Any, *params: Any, **kwargs: Any) -> IRModule:
    """A module with a function for each subgraph that TorchDynamo finds when the model is called with these arguments.

    They are `subgraph_0`, `subgraph_1`, and so on, in the order of their calls. Weights of the model are constants;
    with `keep_params_as_input=True` they are parameters after the inputs, as in `from_fx`. Extents are those of the
    arguments.

    Raises `UnsupportedError`, which names all operators that cannot be imported.
    """
    import torch

    keep = bool(kwargs.pop("keep_params_as_input", False))
    names = {id(data): name for name, data in (*model.named_parameters(), *model.named_buffers())}
    mod = IRModule()

    def capture(graph_module: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        weights = {i: (names[id(x)], x) for i, x in enumerate(example_inputs) if id(x) in names}
        given = [x for i, x in enumerate(example_inputs) if i not in weights]
        input_info = [(tuple(x.shape), str(x.dtype)) for x in given]
        made = TorchFXImporter(graph_module, input_info, {}, keep, weights).run(unwrap=True, no_bind=False)
        mod[f"subgraph_{len(mod.get_global_vars())}"] = made["main"]
        return graph_module.forward

    torch._dynamo.reset()
    torch.compile(model, backend=capture, dynamic=False)(*params, **kwargs)
    torch._dynamo.reset()
    return mod
