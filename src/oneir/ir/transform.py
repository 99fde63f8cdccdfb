"""Passes: named transformations of modules, run in a context of options and instruments.

@module_pass(opt_level=0)
def my_pass(mod, ctx):
    return mod

with PassContext(config={"tir.UnrollLoop": {"auto_max_step": 16}}, instruments=[PassTimingInstrument()]):
    mod = Sequential([Simplify(), my_pass])(mod)
"""

from __future__ import annotations

import difflib
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, cast, dataclass_transform

from ..runtime.error import InvalidValue, NotRegistered, TypeMismatch
from .container import is_sequence
from .module import IRModule
from .visitor import deep_recursion

_config_keys: dict[str, type | tuple[type, ...] | None] = {}


def register_config_option(key: str, kind: type | tuple[type, ...] | None = None) -> None:
    """Declares an option of `PassContext(config=...)`, with the type that its value must have."""
    _config_keys[key] = kind


class UnknownOption(NotRegistered, AttributeError):
    """An option that no pass has declared."""


class WrongOption(TypeMismatch, AttributeError):
    """A value of an option that is not of its type, or a field that the option has not."""


class PassInfo:
    """The properties of a pass: its name, the optimization level from which on it runs, the passes that it requires."""

    def __init__(self, opt_level: int, name: str, required: Sequence[str] = (), traceable: bool = False):
        self.opt_level = opt_level
        self.name = name
        self.required = list(required)
        self.traceable = traceable

    def __repr__(self) -> str:
        return f"PassInfo(name={self.name!r}, opt_level={self.opt_level}, required={self.required})"


class PassContext:
    """Options and instruments for the passes that run inside of `with`."""

    _local = threading.local()

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        trace: Any = None,
    ):
        self.opt_level = opt_level
        self.required_pass = list(required_pass or ())
        self.disabled_pass = list(disabled_pass or ())
        self.instruments = list(instruments or ())
        self.config = {key: self._checked(key, value) for key, value in (config or {}).items()}
        self.trace = trace

    @staticmethod
    def _checked(key: str, value: Any) -> Any:
        """The value of an option; a mapping given for an option with fields becomes an object of them."""
        if key not in _config_keys:
            near = difflib.get_close_matches(key, list(_config_keys), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownOption(f"PassContext has no option {key!r}{hint} PassContext.list_configs() names them all")
        kind = _config_keys[key]
        if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
            known, given = [field.name for field in fields(kind)], cast("Mapping[str, Any]", value)
            for name in given:
                if name not in known:
                    raise WrongOption(f"the option {key!r} has no field {name!r}; it has {', '.join(known)}")
            return kind(**given)
        if kind is not None and not isinstance(value, kind):
            raise WrongOption(f"PassContext option {key!r} expects {kind}, found {value!r}")
        return value

    def __enter__(self) -> PassContext:
        stack = self._stack()
        stack.append(self)
        try:
            for instrument in self.instruments:
                instrument.enter_pass_ctx()
        except BaseException:
            stack.pop()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack().pop()
        for instrument in self.instruments:
            instrument.exit_pass_ctx()

    @classmethod
    def _stack(cls) -> list[PassContext]:
        stack: list[PassContext] | None = getattr(cls._local, "stack", None)
        if stack is None:
            stack = cls._local.stack = []
        return stack

    @classmethod
    def current(cls) -> PassContext:
        """The innermost context of this thread; one with default options when there is none."""
        stack = cls._stack()
        return stack[-1] if stack else _DEFAULT_CONTEXT

    def override_instruments(self, instruments: Sequence[Any]) -> None:
        """Replaces the instruments."""
        for instrument in self.instruments:
            instrument.exit_pass_ctx()
        self.instruments = list(instruments)
        for instrument in self.instruments:
            instrument.enter_pass_ctx()

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a pass runs in this context."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    @staticmethod
    def list_configs() -> dict[str, Any]:
        """All options and their types."""
        return {
            key: {"type": getattr(kind, "__name__", str(kind))}
            for key, kind in sorted(_config_keys.items(), key=lambda i: i[0])
        }


_DEFAULT_CONTEXT = PassContext()


@dataclass_transform(frozen_default=True)
class Pass:
    """Base of passes: values that transform a module when they are called.

        class FuseOps(ModulePass, opt_level=1):
            fuse_opt_level: int = -1

            def transform_module(self, mod, ctx): ...

    The fields of a subclass are its options: it becomes a frozen dataclass, which shows them in its `repr` and is
    compared by them. In its header, `name` is the one that contexts and instruments know it by (that of the class,
    unless given), `opt_level` the level from which on it runs, `required` the passes that it needs.
    """

    _info: ClassVar[PassInfo]
    _prefix: ClassVar[str] = ""
    """What the names of passes begin with."""

    def __init_subclass__(cls, *, name: str | None = None, opt_level: int = 0, required: Sequence[str] = ()) -> None:
        super().__init_subclass__()
        cls._info = PassInfo(opt_level, name or cls._prefix + cls.__name__, required)
        own = inspect.get_annotations(cls).values()
        if not all(isinstance(annotation, str) and annotation.startswith("ClassVar") for annotation in own):
            dataclass(frozen=True)(cls)

    @property
    def info(self) -> PassInfo:
        """The name, level and requirements of the pass."""
        return self._info

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The transformed module; the identical one when there is nothing to do."""
        raise NotImplementedError

    def __call__(self, mod: IRModule) -> IRModule:
        """Runs the pass: first the passes that it needs, then, between the instruments, the transformation."""
        ctx = PassContext.current()
        if not ctx.instruments:
            return self._checked(mod, ctx)
        for instrument in ctx.instruments:
            if not instrument.should_run(mod, self.info):
                return mod
        for instrument in ctx.instruments:
            instrument.run_before_pass(mod, self.info)
        result = self._checked(mod, ctx)
        for instrument in ctx.instruments:
            instrument.run_after_pass(result, self.info)
        return result

    def _checked(self, mod: IRModule, ctx: PassContext) -> IRModule:
        with deep_recursion:
            result: Any = self.transform_module(mod, ctx)
        if not isinstance(result, IRModule):
            raise TypeMismatch(f"the pass {self.info.name!r} must return an IRModule, found {type(result).__name__}")
        return result

    def __eq__(self, other: object) -> bool:
        # Subclasses with options are dataclasses, which compare them.
        return self is other or (type(self) is type(other) and type(self).__init__ is object.__init__)

    def __hash__(self) -> int:
        return hash(type(self)) if type(self).__init__ is object.__init__ else id(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ModulePass(Pass):
    """A pass over a whole module."""


class Sequential(Pass):
    """Passes, one after the other; those that the context disables, or whose level is too high, are left out."""

    passes: Sequence[Pass] = ()
    opt_level: int = 0
    name: str = "sequential"
    required: Sequence[str] | None = None
    traceable: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes", tuple(self.passes or ()))
        for p in self.passes:
            if not callable(p):
                raise TypeMismatch(f"Sequential expects passes, found {p!r}")

    @property
    def info(self) -> PassInfo:
        return PassInfo(self.opt_level, self.name, self.required or (), self.traceable)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for p in self.passes:
            if not hasattr(p, "info") or ctx.pass_enabled(p.info):
                mod = p(mod)
        return mod


def pass_key(value: Any) -> str | None:
    """A text that identifies a pass, or an option of one, for keys of caches.

    None where there is none: for passes that users wrote, and options that are functions or other objects. A class of
    this package that is no dataclass may have a method `pass_key` that gives the text.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if is_sequence(value):
        parts = [pass_key(part) for part in value]
        return None if None in parts else f"({', '.join(part for part in parts if part is not None)})"
    cls: type[Any] = value.__class__
    if cls.__module__.partition(".")[0] != __name__.partition(".")[0]:
        return None
    if is_dataclass(cls):
        options = pass_key([getattr(value, field.name) for field in fields(cls)])
    elif hasattr(cls, "pass_key"):
        options = value.pass_key()
    else:
        options = "()" if cls.__init__ is object.__init__ else None
    return None if options is None else f"{cls.__module__}.{cls.__qualname__}{options}"


def _class_pass(cls: type, info: PassInfo, base: type[Pass], method: str) -> type:
    """A pass class whose constructor builds an instance of `cls`, and whose transformation calls its method."""

    class PyPass(base):
        def __init__(self, *args: Any, **kwargs: Any):
            object.__setattr__(self, "_instance", cls(*args, **kwargs))

        @property
        def info(self) -> PassInfo:
            return info

        def __getattr__(self, name: str) -> Any:
            return getattr(self._instance, name)

    def transform(self: Any, *args: Any) -> Any:
        return getattr(self._instance, method)(*args)

    setattr(PyPass, method, transform)
    PyPass.__name__, PyPass.__qualname__, PyPass.__doc__ = cls.__name__, cls.__qualname__, cls.__doc__
    PyPass.__module__ = cls.__module__
    return PyPass


def pass_decorator(base: type[Pass], method: str) -> Callable[..., Any]:
    """The decorator that makes passes of the class `base` out of functions, and of classes with the given method."""

    class OfFunction(base):
        function: Callable[..., Any]
        own_info: PassInfo

        @property
        def info(self) -> PassInfo:
            return self.own_info

    def transform(self: Any, *args: Any) -> Any:
        return self.function(*args)

    setattr(OfFunction, method, transform)
    OfFunction.__name__ = OfFunction.__qualname__ = base.__name__

    def decorate(
        pass_func: Any = None,
        opt_level: int = 0,
        name: str | None = None,
        required: Sequence[str] | None = None,
        traceable: bool = False,
    ) -> Any:
        def create(target: Any) -> Any:
            if not callable(target):
                raise TypeMismatch(f"a pass is a function or a class, found {target!r}")
            info = PassInfo(opt_level, name or target.__name__, required or (), traceable)
            if isinstance(target, type):
                if not hasattr(target, method):
                    raise TypeMismatch(f"the pass class {target.__name__} must define {method}(self, ..., ctx)")
                return _class_pass(target, info, base, method)
            return OfFunction(target, info)

        return create if pass_func is None else create(pass_func)

    return decorate


module_pass = pass_decorator(ModulePass, "transform_module")


class PrintIR(ModulePass):
    """Prints the module, below a line with `header`, and leaves it alone."""

    header: str = ""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        print(f"{self.header}\n{mod.script()}" if self.header else mod.script())
        return mod


class ApplyPassToFunction(ModulePass):
    """Applies another pass only to the functions whose whole name matches a regular expression."""

    transform: Pass
    func_name_regex: str
    error_if_no_function_matches_regex: bool = False

    def __post_init__(self) -> None:
        try:
            re.compile(self.func_name_regex)
        except re.error as error:
            raise InvalidValue(f"{self.func_name_regex!r} is no regular expression: {error}") from None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        pattern = re.compile(self.func_name_regex)
        chosen = {var: func for var, func in mod.functions.items() if pattern.fullmatch(var.name_hint)}
        if not chosen:
            if self.error_if_no_function_matches_regex:
                names = ", ".join(v.name_hint for v in mod.get_global_vars())
                raise NotRegistered(f"no function of the module matches {self.func_name_regex!r}; it has {names}")
            return mod
        before = mod.replace(functions=chosen)
        after = self.transform(before)
        if after is before:
            return mod
        functions = {var: func for var, func in mod.functions.items() if var not in chosen}
        return mod.replace(
            functions={**functions, **after.functions}, attrs=after.attrs, global_infos=after.global_infos
        )
