"""From a module and the specs of its methods to a program."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from ....ir.expr import Var as TirVar
from ....ir.module import IRModule
from ....runtime.error import InvalidValue
from ...block_builder import BlockBuilder
from ...expr import Expr, TupleGetItem, Var
from ...expr import Tuple as GraphTuple
from ...struct_info import ObjectStructInfo, ShapeStructInfo, TensorStructInfo, TupleStructInfo
from . import spec
from .effects import IOEffect
from .tensor import Effect, Object, Parameter, Tensor, unwrapped

if TYPE_CHECKING:
    from .extern import ExternModule

NamedEffects = list[tuple[str, Effect]]
NamedParameters = list[tuple[str, Parameter]]


def add_extern(mod: ExternModule) -> None:
    """Adds an external module to the program that is being exported."""
    Exporter.current().add_external_module(mod)


class Exporter:
    """Exports one module. With `debug`, methods carry the state of `nn.op.print_`."""

    _local: ClassVar[threading.local] = threading.local()

    def __init__(self, debug: bool = False):
        self.builder = BlockBuilder()
        self.io_effect: IOEffect | None = IOEffect() if debug else None
        self.extern_mods: list[ExternModule] = []

    @staticmethod
    def current() -> Exporter:
        """The exporter that is at work in this thread."""
        exporter = getattr(Exporter._local, "current", None)
        if exporter is None:
            raise InvalidValue("no module is being exported: this is called from a module's method, by export_tvm")
        return exporter

    def __enter__(self) -> Exporter:
        if getattr(Exporter._local, "current", None) is not None:
            raise InvalidValue("a module is being exported already; export one after the other")
        Exporter._local.current = self
        return self

    def __exit__(self, *exception: Any) -> None:
        Exporter._local.current = None

    def add_external_module(self, mod: ExternModule) -> None:
        """Adds an external module; no two may have a function of one name."""
        taken = {symbol for other in self.extern_mods for symbol in other.symbols}
        duplicates = [symbol for symbol in mod.symbols if symbol in taken]
        if duplicates:
            raise InvalidValue(f"Duplicate symbols: {duplicates}")
        self.extern_mods.append(mod)

    def build(self, module_spec: spec.ModuleSpec) -> tuple[IRModule, NamedParameters, list[ExternModule]]:
        """The program, the parameters in the order of the functions' last parameters, and the external modules."""
        params = _distinct(module_spec.module.named_attributes(Parameter))
        effects: NamedEffects = [] if self.io_effect is None else [("", self.io_effect)]
        effects += _distinct(module_spec.module.named_attributes(Effect))
        symbolic = [(param, param._expr) for _, param in params]
        with self:
            if effects:
                self._emit_initialization(effects)
            try:
                for name, method in zip(module_spec.method_names, module_spec.method_specs, strict=True):
                    self._emit_function(name, method, params, effects)
            finally:
                for param, expr in symbolic:
                    param._expr = expr
        return self.builder.finalize(), params, self.extern_mods

    def _emit_initialization(self, effects: NamedEffects) -> None:
        builder = self.builder
        with builder.function("_initialize_effect"):
            with builder.dataflow():
                states = [var for name, effect in effects for var in effect.emit_init(name, builder)]
                output = builder.emit_output(builder.emit(GraphTuple(states)))
            builder.emit_func_output(output, params=[])

    def _emit_function(
        self, name: str, method: spec.MethodSpec, params: NamedParameters, effects: NamedEffects
    ) -> None:
        states = {"packed": 1, "none": 0, "plain": len(effects)}[method.effect_mode]
        with self.builder.function(name, attrs={"num_input": len(method.arg_specs) + states}):
            with self.builder.dataflow():
                output, inputs = _Method(self.builder, method, params, effects).emit()
            self.builder.emit_func_output(output, inputs)


def _distinct(named: Any) -> list[Any]:
    """Named things, each once: what is shared goes by its first name."""
    found: dict[int, tuple[str, Any]] = {}
    for name, thing in named:
        found.setdefault(id(thing), (name, thing))
    return list(found.values())


class _Method:
    """Emits the body of one method."""

    def __init__(self, builder: BlockBuilder, method: spec.MethodSpec, params: NamedParameters, effects: NamedEffects):
        self.builder, self.method, self.params, self.effects = builder, method, params, effects
        self.symbolic: dict[str, TirVar] = {}

    def emit(self) -> tuple[Var, list[Var]]:
        """The output variable, and the parameters of the function."""
        method = self.method
        arguments = [self.argument(n, s) for n, s in zip(method.arg_names, method.arg_specs, strict=True)]
        self.symbolic = {}  # the symbolic extents of weights are named apart from those of arguments
        inputs = [_parameter_of(a) for a in arguments]
        given = [
            self.unpacked(a, v) if isinstance(a, spec.Tuple) else a for a, v in zip(arguments, inputs, strict=True)
        ]
        inputs += self.enter_effects()
        inputs += self.bind_parameters()
        result = unwrapped(method.method(**dict(zip(method.arg_names, given, strict=True))))
        states = [var for _, effect in self.effects for var in effect.finalize()]
        if states and method.effect_mode != "none":
            result = GraphTuple([result, GraphTuple(states)])
        return self.builder.emit_output(result), inputs

    def symbol(self, name: str) -> TirVar:
        return self.symbolic.setdefault(name, TirVar(name, "int64"))

    def argument(self, name: str, arg: spec.ArgSpec) -> Any:
        """What the method gets; a `spec.Tuple` of these where it gets a tuple."""
        if isinstance(arg, spec.Int):
            return self.symbol(name)
        if isinstance(arg, spec.Tensor):
            shape = [self.symbol(e) if isinstance(e, str) else e for e in arg.shape]
            return Tensor.placeholder(shape, arg.dtype, name)
        if isinstance(arg, spec.Object):
            return arg.object_type(_expr=Var(name, ObjectStructInfo()), _name=name)
        elements = [self.argument(f"{name}_{i}", e) for i, e in enumerate(arg.elements)]
        return spec.Tuple(name, type(arg.elements)(elements))

    def unpacked(self, argument: Any, value: Expr) -> Any:
        """A tuple that the method gets, its fields taken from the function's parameter."""
        if isinstance(argument, spec.Tuple):
            fields = []
            for i, element in enumerate(argument.elements):
                field = self.builder.emit(TupleGetItem(value, i), f"{argument.name}_{i}")
                fields.append(self.unpacked(element, field))
            return type(argument.elements)(fields)
        if isinstance(argument, Tensor):
            return Tensor(_expr=value)
        if isinstance(argument, Object):
            return type(argument)(_expr=value, _name=getattr(value, "name", "object"))
        return argument

    def enter_effects(self) -> list[Var]:
        """Gives effects the variables of their states; returns the function's parameters for them."""
        states = [effect.create(name) for name, effect in self.effects]
        inputs = [var for state in states for var in state]
        if self.method.effect_mode == "packed":
            packed = Var("packed_effects", TupleStructInfo([v.struct_info for v in inputs]))
            fields = iter([self.builder.emit(TupleGetItem(packed, i), v.name) for i, v in enumerate(inputs)])
            states = [[next(fields) for _ in state] for state in states]
            inputs = [packed]
        for state, (_, effect) in zip(states, self.effects, strict=True):
            effect.set_state(state)
        return inputs if self.method.effect_mode != "none" else []

    def bind_parameters(self) -> list[Var]:
        """Gives the module's parameters variables of this function; returns the function's parameters for them."""
        inputs: list[Var] = []
        for name, param in self.params:
            shape = [self.symbol(e.name) if isinstance(e, TirVar) else e for e in param.shape]
            var = Var(name, TensorStructInfo(shape, param.dtype))
            param._expr = var
            inputs.append(var)
        if self.method.param_mode != "packed":
            return inputs if self.method.param_mode == "plain" else []
        packed = Var("packed_params", TupleStructInfo([v.struct_info for v in inputs]))
        for i, (name, param) in enumerate(self.params):
            param._expr = self.builder.emit(TupleGetItem(packed, i), name)
        return [packed]


def _parameter_of(argument: Any) -> Var:
    """The function's parameter for an argument of the method."""
    if isinstance(argument, TirVar):
        return Var(argument.name, ShapeStructInfo([argument]))
    if isinstance(argument, spec.Tuple):
        return Var(argument.name, TupleStructInfo([_parameter_of(e).struct_info for e in argument.elements]))
    return argument._expr
