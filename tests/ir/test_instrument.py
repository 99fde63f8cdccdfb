"""Instruments: when they are called, what they print, write and measure, and how they keep passes from running."""

from __future__ import annotations

import pytest

from oneir.ir import IRModule
from oneir.ir.instrument import (
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    pass_instrument,
)
from oneir.ir.transform import PassContext, Sequential, module_pass
from oneir.runtime.error import TypeMismatch
from oneir.script import tir as T


@T.prim_func(private=True)
def f(A: T.Buffer((4,), "float32")):
    A[0] = T.float32(1)


MOD = IRModule({"f": f})


def mark(name):
    return module_pass(lambda mod, ctx: mod.with_attr("last", name), name=name)


PIPELINE = Sequential([mark("a"), mark("b")], name="pipeline")


class Log(PassInstrument):
    def __init__(self, name, log, skip=()):
        self.name, self.log, self.skip = name, log, skip

    def enter_pass_ctx(self):
        self.log.append(f"{self.name} enters")

    def exit_pass_ctx(self):
        self.log.append(f"{self.name} exits")

    def should_run(self, mod, info):
        return info.name not in self.skip

    def run_before_pass(self, mod, info):
        self.log.append(f"{self.name}: {info.name} on {mod.attrs.get('last')}")

    def run_after_pass(self, mod, info):
        self.log.append(f"{self.name}: {info.name} gave {mod.attrs.get('last')}")


def test_instruments_are_told_in_their_order():
    log = []
    with PassContext(instruments=[Log("1", log), Log("2", log)]):
        mark("a")(MOD)
    assert log == [
        "1 enters",
        "2 enters",
        "1: a on None",
        "2: a on None",
        "1: a gave a",
        "2: a gave a",
        "1 exits",
        "2 exits",
    ]


def test_one_instrument_can_keep_a_pass_from_running():
    log = []
    with PassContext(instruments=[Log("1", log), Log("2", log, skip=["a"])]):
        result = PIPELINE(MOD)
    assert result.attrs["last"] == "b" and not any(": a " in line for line in log)


def test_instruments_can_be_replaced():
    log = []
    with PassContext(instruments=[Log("old", log)]) as ctx:
        ctx.override_instruments([Log("new", log)])
        mark("a")(MOD)
    assert log == ["old enters", "old exits", "new enters", "new: a on None", "new: a gave a", "new exits"]


def test_an_instrument_that_fails_to_start_leaves_no_context():
    class Fails(PassInstrument):
        def enter_pass_ctx(self):
            raise RuntimeError("cannot start")

    with pytest.raises(RuntimeError, match="cannot start"), PassContext(opt_level=0, instruments=[Fails()]):
        pass
    assert PassContext.current().opt_level == 2


def test_a_plain_class_becomes_an_instrument():
    @pass_instrument
    class Names:
        """Lists the passes."""

        def __init__(self, start):
            self.names = [start]

        def run_before_pass(self, mod, info):
            self.names.append(info.name)

    names = Names("start")
    with PassContext(instruments=[names]):
        PIPELINE(MOD)
    assert names.names == ["start", "pipeline", "a", "b"] and isinstance(names, PassInstrument)
    assert Names.__doc__ == "Lists the passes."
    with pytest.raises(TypeMismatch, match="pass_instrument expects a class, found 3"):
        pass_instrument(3)


def test_times_are_nested_as_the_passes_are():
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        PIPELINE(MOD)
        text = timing.render()
    lines = text.splitlines()
    assert [line.split(":")[0] for line in lines] == ["pipeline", "  a", "  b", "total"]
    assert [(depth, name) for depth, name, _ in timing.entries] == [(0, "pipeline"), (1, "a"), (1, "b")]
    total, a, b = (seconds for _, _, seconds in timing.entries)
    assert 0 <= a + b <= total and lines[0].endswith("(100.00%)")
    assert PassTimingInstrument().render() == "total: 0us"


def test_a_failed_pass_does_not_disturb_the_times_of_the_next():
    timing = PassTimingInstrument()

    @module_pass
    def fails(mod, ctx):
        raise RuntimeError("no")

    with PassContext(instruments=[timing]):
        with pytest.raises(RuntimeError, match="no"):
            fails(MOD)
        mark("a")(MOD)
    with PassContext(instruments=[timing]):
        mark("b")(MOD)
        assert [name for _, name, _ in timing.entries] == ["b"]


def test_printing_before_and_after_all(capsys):
    with PassContext(instruments=[PrintBeforeAll()]):
        mark("a")(MOD)
    before = capsys.readouterr().out
    with PassContext(instruments=[PrintAfterAll()]):
        after_module = mark("a")(MOD)
    after = capsys.readouterr().out
    assert before == f"# --- IR before pass a ---\n{MOD.script()}\n\n"
    assert after == f"# --- IR after pass a ---\n{after_module.script()}\n\n" and '"last": "a"' in after


def test_printing_around_chosen_passes(capsys):
    with PassContext(instruments=[PassPrintingInstrument(["b"], ["a"])]):
        PIPELINE(MOD)
    headers = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# Print")]
    assert headers == ["# Print IR after: a", "# Print IR before: b"]


def test_dumping_writes_a_file_a_pass(tmp_path):
    where = tmp_path / "deep" / "dump"
    with PassContext(instruments=[DumpIR(where)]):
        PIPELINE(MOD)
        mark("x/y z")(MOD)
    assert sorted(p.name for p in where.iterdir()) == ["000_a.py", "001_b.py", "002_pipeline.py", "003_x_y_z.py"]
    assert '"last": "b"' in (where / "001_b.py").read_text()


def test_dumping_again_may_clear_the_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with PassContext(instruments=[DumpIR(tmp_path)]):
        PIPELINE(MOD)
    with PassContext(instruments=[DumpIR(tmp_path, refresh=True)]):
        mark("a")(MOD)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000_a.py", "notes.txt"]


def test_the_time_of_a_pass_is_its_own(monkeypatch):
    now = iter([0.0, 1.0, 3.0, 3.5, 4.0, 10.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        PIPELINE(MOD)
        timing.run_after_stage("LLVM", 2.0)
        timing.run_after_stage("LLVM", 1.0)
    assert timing.own_times() == {"pipeline": (1, 7.5), "a": (1, 2.0), "b": (1, 0.5), "LLVM": (2, 3.0)}


def test_an_instrument_may_ignore_stages():
    assert PassInstrument().run_after_stage("LLVM", 1.0) is None
