"""Backends for `torch.compile`: the subgraphs that TorchDynamo finds become native programs.

    compiled = torch.compile(model, backend="oneir")
    loss = criterion(compiled(x), y)
    loss.backward()

Forward and backward passes are those that AOTAutograd makes of a subgraph; both are compiled. Arguments and weights are
read where they are; nothing is copied but tensors with gaps. Extents that vary from call to call (`dynamic=True`, or
what PyTorch found to vary) are symbolic. What a model writes into its buffers and arguments is written when the program
has run. Results have the dimensions in the order in memory that PyTorch gives them.

Random numbers are those of PyTorch's generator, so that dropout gives what it gives without `torch.compile`. PyTorch
runs, with a warning that names them, the operators that cannot be imported, or the whole subgraph where that does not
help. Options:

    fallback    False: what cannot be compiled is an error
    freeze      True: weights are constants of programs without gradients, and changes of them are not seen
    target      what to compile for: a target, or its text, such as "llvm -mcpu=znver3"; else this machine
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ir.module import IRModule
from ....ir.transform import Pass
from ....runtime.error import InvalidValue, UnsupportedError
from ....runtime.once import once
from ..importer import UnsupportedNode
from . import operators
from .fx_translator import TorchFXImporter
from .importer import check_dense
from .registry import NotDecomposable, find_converter
from .subgraph import SubgraphImporter, inverse, memory_order
from .subgraph_parts import by_pytorch, in_parts, views_of_inputs, with_companions
from .subgraph_program import program
from .subgraph_training import Training, trains_alone

_OPTIONS = ("fallback", "freeze", "target")
_MODES = ("default", "max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead")


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

    `mode` is one of PyTorch's; all of them compile the same, since nothing is searched for. Raises `InvalidValue` for
    unknown options and modes; with the option `fallback` False, `UnsupportedError`, which names all operators that
    cannot be imported and the lines that they come from.
    """
    given = dict(options or {})
    if unknown := sorted(given.keys() - set(_OPTIONS)):
        raise InvalidValue(f"unknown options {unknown} of the backend; options are {', '.join(_OPTIONS)}")
    if mode is not None and mode not in _MODES:
        raise InvalidValue(f"unknown mode {mode!r} of the backend; modes are {', '.join(_MODES)}")
    from torch._dynamo.exc import TorchDynamoException

    try:
        return _compiled(graph_module, example_inputs, given, pipeline)
    except TorchDynamoException:  # TorchDynamo asks for another subgraph
        raise
    except Exception as error:  # whatever it is, PyTorch can run the subgraph
        if not given.get("fallback", True):
            raise
        _warn(f"PyTorch runs a whole subgraph, since {type(error).__name__}: {error}")
        return graph_module.forward


def _compiled(
    graph_module: Any, example_inputs: Sequence[Any], options: Mapping[str, Any], pipeline: Pass | str | None
) -> Callable[..., Any]:
    """The function of a subgraph. What PyTorch has smaller operators for is broken into these if nothing else helps."""
    from functorch.compile import min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    _check_inputs(example_inputs)
    broken: dict[Any, Any] = {}
    while True:
        compiler = _Compiler(example_inputs, options, pipeline, broken)
        compile_all = aot_autograd(
            fw_compiler=functools.partial(compiler, training=True),
            bw_compiler=functools.partial(compiler, training=True, backward=True),
            inference_compiler=compiler,
            partition_fn=min_cut_rematerialization_partition,
            decompositions={**_unknown_operators(), **_random_operators(), **broken},
            keep_inference_input_mutations=True,
        )
        run = compile_all(graph_module, example_inputs)
        if not compiler.wanted:
            if compiler.alone is not None:
                return _of_arguments(compiler.alone)
            return run if compiler.training is None else compiler.training.function(run)
        broken |= compiler.wanted


@once
def _unknown_operators() -> dict[Any, Any]:
    """PyTorch's decompositions of the operators that have no converter; those of random numbers draw others."""
    from torch.export import default_decompositions

    known = default_decompositions()
    return {
        target: decomposition
        for target, decomposition in known.items()
        if find_converter(*operators.name_of(target)) is None and not operators.draws_by_itself(target)
    }


@once
def _random_operators() -> dict[Any, Any]:
    """Dropout as a mask of random numbers, which depends on nothing but a shape, and a product."""
    import torch

    def native_dropout(x: Any, p: float, train: bool | None) -> Any:
        if train is False or p == 0:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        if p == 1:
            return torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool)
        # PyTorch draws the numbers in the order in memory of a tensor like x.
        order = memory_order(torch.empty_like(x)) or tuple(range(x.ndim))
        shape = [x.shape[axis] for axis in order]
        drawn = torch.ops.aten.bernoulli.p(torch.empty(shape, dtype=torch.bool, device=x.device), 1.0 - p)
        mask = drawn.permute(inverse(order))
        return x * mask * (1.0 / (1.0 - p)), mask

    return {torch.ops.aten.native_dropout.default: native_dropout}


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


class _Compiler:
    """Compiles the functional graphs of ATen's operators that AOTAutograd makes of a subgraph."""

    def __init__(
        self,
        example_inputs: Sequence[Any],
        options: Mapping[str, Any],
        pipeline: Pass | str | None,
        broken: Mapping[Any, Any],
    ):
        import torch

        self.options, self.pipeline, self.broken = options, pipeline, broken
        # Decompositions of operators that cannot be imported, with which all is to be compiled anew.
        self.wanted: dict[Any, Any] = {}
        # The function of the only graph, if AOTAutograd has nothing to do around it.
        self.alone: Callable[[list[Any]], Any] | None = None
        # The two passes, if it has nothing to do around them.
        self.training: Training | None = None
        self.device = device_from_inputs(example_inputs)
        self.given = example_inputs
        self.is_program = False
        # AOTAutograd compiles with autocast switched off.
        self.autocast = torch._C._is_any_autocast_enabled()

    def __call__(
        self, graph_module: Any, example_inputs: Sequence[Any], *, training: bool = False, backward: bool = False
    ) -> Any:
        """The function of one graph, which takes a list of its arguments."""
        from torch.utils._python_dispatch import _disable_current_modes

        try:
            # Weights are read as real tensors, not as the fake ones that PyTorch traces with.
            with _disable_current_modes():
                run = self.run(graph_module, training)
        except Exception as error:
            if not self.options.get("fallback", True):
                raise
            what = "backward pass" if backward else "subgraph"
            _warn(f"PyTorch runs the whole of a {what}, since {type(error).__name__}: {error}")
            run = _whole(graph_module)
        # PyTorch then passes the arguments as one list.
        vars(run)["_boxed_call"] = True
        if backward:
            # What PyTorch runs may want gradients in the order in memory that they were traced with.
            if self.training is not None and self.is_program:
                self.training.backward = run
        elif not self.autocast and (metadata := _alone(graph_module.graph, self.given)) is not None:
            if not training:
                self.alone = run
            elif trains_alone(metadata):
                self.training = Training(metadata, run)
        return run

    def run(self, graph_module: Any, training: bool) -> Callable[[list[Any]], Any]:
        """The function of a graph; `is_program` says whether that is one program."""
        self.is_program = False
        pure, written = _without_writes(graph_module)
        if written:
            return _writing(self.run(pure, training), written)
        graph = graph_module.graph
        weights = [] if training else _kept_weights(graph, len(self.given))
        frozen = {i: self.given[i] for i in weights} if self.options.get("freeze") else {}
        eager = with_companions(graph, by_pytorch(graph, training) | views_of_inputs(graph))
        importer = SubgraphImporter(graph_module, frozen, weights)
        try:
            mod = importer.run()
        except UnsupportedError as error:
            missing = [u for u in importer.unsupported if u.node not in eager]
            if not importer.unsupported or any(u.node not in graph.nodes for u in missing):
                raise
            self.wanted |= self.decompositions(missing)
            if self.wanted:
                return _whole(graph_module)
            self.check(missing, error)
            eager = with_companions(graph, {*eager, *(u.node for u in missing)})
        else:
            if not eager:
                self.is_program = True
                return self.program(mod, importer)
        names = [node.name for node in graph.nodes if node.op == "placeholder"]
        kept, constant = {names[i] for i in weights}, {names[i]: x for i, x in frozen.items()}
        return in_parts(graph_module, eager, lambda part: self.part(part, kept, constant))

    def decompositions(self, missing: Sequence[UnsupportedNode]) -> dict[Any, Any]:
        """PyTorch's decompositions of operators that cannot be imported, but for those that were tried."""
        nodes = [u.node for u in missing if not isinstance(u.error, NotDecomposable)]
        # A result that is for training alone is missing because of the operator that has it.
        targets = {(node.args[0] if operators.is_getitem(node) else node).target for node in nodes}
        return operators.decompositions(targets - self.broken.keys())

    def check(self, missing: Sequence[UnsupportedNode], error: UnsupportedError) -> None:
        """Raises if what cannot be imported is an error, else warns of it."""
        if not missing:
            return
        if not self.options.get("fallback", True):
            raise error
        count = "an operator" if len(missing) == 1 else f"{len(missing)} operators"
        lines = [f"PyTorch runs {count} of a subgraph that cannot be imported:"]
        _warn("\n".join([*lines, *(f"  {u.description}\n    {u.error}" for u in missing)]))

    def part(self, graph_module: Any, weights: set[str], frozen: Mapping[str, Any]) -> Callable[[list[Any]], Any]:
        """The program of a part of a graph; weights and constants are given by the names of placeholders."""
        names = [node.name for node in graph_module.graph.nodes if node.op == "placeholder"]
        importer = SubgraphImporter(
            graph_module,
            {i: frozen[name] for i, name in enumerate(names) if name in frozen},
            [i for i, name in enumerate(names) if name in weights],
        )
        return self.program(importer.run(), importer)

    def program(self, mod: IRModule, importer: SubgraphImporter) -> Callable[[list[Any]], Any]:
        """The native program of an imported graph."""
        on_cuda = self.device is not None and self.device.type == "cuda"
        target = self.options.get("target") or ("cuda" if on_cuda else llvm_target())
        return program(mod, importer.arguments, importer.results, self.device, target, self.pipeline)


def _without_writes(graph_module: Any) -> tuple[Any, list[int]]:
    """A graph that returns last what a graph writes, at its end, into placeholders; and the places of these."""
    from torch.fx import Graph, GraphModule

    graph, values = Graph(), {}
    results = graph.graph_copy(graph_module.graph, values)
    assert isinstance(results, (tuple, list))
    places = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    writes = [n for n in graph.nodes if operators.is_in_place(n.target) and n.args[0] in places]
    if not writes or any(operators.name_of(node.target)[0] != "copy_" or node.users for node in writes):
        return graph_module, []
    written, sources = zip(*(node.args[:2] for node in writes), strict=True)
    for node in writes:
        graph.erase_node(node)
    graph.output((*results, *sources))
    return GraphModule(graph_module, graph), [places[node] for node in written]


def _writing(run: Callable[[list[Any]], Any], places: Sequence[int]) -> Callable[[list[Any]], Any]:
    """A function whose last results are written into the arguments at these places instead of being returned."""
    count = len(places)

    def call(args: list[Any]) -> Any:
        targets = [args[i] for i in places]
        results = run(args)
        for target, value in zip(targets, results[-count:], strict=True):
            (target.detach() if target.requires_grad else target).copy_(value)
        return results[:-count]

    return call


def _kept_weights(graph: Any, count: int) -> list[int]:
    """The placeholders that are weights and buffers, which the graph, of a subgraph of `count` inputs, only reads."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None or sum(node.op == "placeholder" for node in graph.nodes) != count:
        # Where inputs share memory, AOTAutograd replaces them by others.
        return []
    return [i for i in metadata.static_input_indices if not metadata.input_info[i].mutates_data]


def _of_arguments(run: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """The function of its arguments, of one that takes a list of them."""
    return lambda *args: run(list(args))


def _alone(graph: Any, inputs: Sequence[Any]) -> Any:
    """AOTAutograd's metadata of a subgraph, if calling its graphs is all that AOTAutograd does when it runs; else None.

    It also writes what it has taken out of the graph, makes views of results, wraps subclasses of tensors, and switches
    autocast off. Asking whether there is something to do takes it two microseconds a call.
    """
    import torch
    from torch._guards import TracingContext
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    alone = (
        metadata is not None
        and sum(node.op == "placeholder" for node in graph.nodes) == len(inputs)
        and not metadata.num_mutated_inp_runtime_indices
        and not metadata.num_outputs_aliased
        and not metadata.num_intermediate_bases
        and not metadata.tokens
        and not metadata.is_rng_op_functionalized
        and not metadata.dynamic_outputs
        and not any(is_traceable_wrapper_subclass(x) for x in inputs if isinstance(x, torch.Tensor))
    )
    return metadata if alone else None


def _whole(graph_module: Any) -> Callable[[list[Any]], Any]:
    """A graph that PyTorch runs."""

    def run(args: list[Any]) -> Any:
        given = tuple(args)
        args.clear()
        return graph_module.forward(*given)

    return run


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)


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
