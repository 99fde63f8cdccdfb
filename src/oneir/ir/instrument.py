"""Instruments: objects that are called before and after each pass. Given to `PassContext(instruments=[...])`.

with PassContext(instruments=[PassTimingInstrument(), DumpIR("stages")]):
    mod = pipeline(mod)
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from ..runtime.error import TypeMismatch
from .module import IRModule
from .transform import PassInfo


class PassInstrument:
    """Base of instruments; override what you need.

    `should_run` may skip a pass; the other methods are called at the events that they are named after.
    """

    allows_cache = False
    """Whether what is compiled already may come from the cache, without a pass that the instrument would see."""

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether the pass may run."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called before each pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called after each pass, with the transformed module."""

    def run_after_stage(self, name: str, seconds: float) -> None:
        """Called after a step of compiling that is no pass: writing LLVM IR, or LLVM's work on it."""


def pass_instrument(pi_cls: type | None = None) -> Any:
    """A class decorator: the class becomes an instrument; methods that it lacks do nothing."""

    def decorate(cls: Any) -> type:
        if not isinstance(cls, type):
            raise TypeMismatch(f"pass_instrument expects a class, found {cls!r}")
        given: type[Any] = cls
        if issubclass(given, PassInstrument):
            return given
        return type(given.__name__, (given, PassInstrument), {"__doc__": given.__doc__})

    return decorate if pi_cls is None else decorate(pi_cls)


class ProgressInstrument(PassInstrument):
    """Shows in one line on stderr how many passes have run, and which one runs; at the end, how long all took."""

    allows_cache = True

    def __init__(self) -> None:
        self.count, self.start = 0, time.perf_counter()

    def enter_pass_ctx(self) -> None:
        self.count, self.start = 0, time.perf_counter()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.count += 1
        self._show(f"compiling: pass {self.count}, {info.name}")

    def run_after_stage(self, name: str, seconds: float) -> None:
        self._show(f"compiling: {name}")

    def exit_pass_ctx(self) -> None:
        passes = "1 pass" if self.count == 1 else f"{self.count} passes"
        self._show(f"compiled in {time.perf_counter() - self.start:.2f} s, {passes}")
        sys.stderr.write("\n")

    def _show(self, text: str) -> None:
        # Lines of a terminal are overwritten; a file gets the last one.
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text[:78]:<78}")
            sys.stderr.flush()
        elif text.startswith("compiled"):
            sys.stderr.write(text)


class PassTimingInstrument(PassInstrument):
    """Measures how long each pass takes; passes that run others contain their time."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str, float]] = []
        self._running: list[tuple[int, float]] = []

    def enter_pass_ctx(self) -> None:
        self.entries, self._running = [], []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.entries.append((len(self._running), info.name, 0.0))
        self._running.append((len(self.entries) - 1, time.perf_counter()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        index, start = self._running.pop()
        depth, name, _ = self.entries[index]
        self.entries[index] = (depth, name, time.perf_counter() - start)

    def run_after_stage(self, name: str, seconds: float) -> None:
        self.entries.append((len(self._running), name, seconds))

    def own_times(self) -> dict[str, tuple[int, float]]:
        """How often each pass and stage ran, and the seconds that it took without those inside of it, by name."""
        times: dict[str, tuple[int, float]] = {}
        outer: list[str] = []
        for depth, name, seconds in self.entries:
            del outer[depth:]
            count, own = times.get(name, (0, 0.0))
            times[name] = count + 1, own + seconds
            if outer:
                count, own = times[outer[-1]]
                times[outer[-1]] = count, own - seconds
            outer.append(name)
        return times

    def render(self) -> str:
        """The times as text, one pass a line in microseconds, with their share of the whole."""
        total = sum(seconds for depth, _, seconds in self.entries if depth == 0)
        lines = [
            f"{'  ' * depth}{name}: {seconds * 1e6:.0f}us ({seconds / total * 100 if total else 0:.2f}%)"
            for depth, name, seconds in self.entries
        ]
        return "\n".join([*lines, f"total: {total * 1e6:.0f}us"])


class _PrintIR(PassInstrument):
    def __init__(self, before: bool):
        self.before = before

    def _print(self, when: str, mod: IRModule, info: PassInfo) -> None:
        print(f"# --- IR {when} pass {info.name} ---\n{mod.script()}\n")

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self.before:
            self._print("before", mod, info)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not self.before:
            self._print("after", mod, info)


class PrintBeforeAll(_PrintIR):
    """Prints the module before each pass."""

    def __init__(self) -> None:
        super().__init__(before=True)


class PrintAfterAll(_PrintIR):
    """Prints the module after each pass."""

    def __init__(self) -> None:
        super().__init__(before=False)


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes of the given names."""

    def __init__(self, print_before_pass_names: list[str], print_after_pass_names: list[str]):
        self.before = set(print_before_pass_names)
        self.after = set(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.before:
            print(f"# Print IR before: {info.name}\n{mod.script()}\n")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.after:
            print(f"# Print IR after: {info.name}\n{mod.script()}\n")


class DumpIR(PassInstrument):
    """Writes the module after each pass to a file of its own, `000_PassName.py`, in the given directory."""

    def __init__(self, dump_dir: str | Path, refresh: bool = False):
        self.directory = Path(dump_dir)
        self.refresh = refresh
        self.counter = 0

    def enter_pass_ctx(self) -> None:
        self.counter = 0
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.refresh:
            for old in self.directory.glob("[0-9][0-9][0-9]_*.py"):
                old.unlink()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        name = "".join(c if c.isalnum() or c in "._-" else "_" for c in info.name)
        (self.directory / f"{self.counter:03d}_{name}.py").write_text(mod.script(show_meta=True) + "\n")
        self.counter += 1
