"""The errors that OneIR raises.

Every error that a user can meet derives from `OneIRError`. Where Python has a natural class for the mistake, the error
derives from that class too, so both of these work:

    except oneir.OneIRError: ...
    except ValueError: ...

The docstring of a class says what causes the error and what to do: `oneir explain NAME` prints it, and the page of
errors is made of it. It is Markdown; a page of the documentation is named by its path, such as docs/install.md.
"""

from __future__ import annotations


class OneIRError(Exception):
    """Base of all errors of this project; `except oneir.OneIRError` catches each of them.

    A message says what was expected, what was found and where. In scripts and programs the part that is to blame is
    underlined. Where only this class is named, the message itself says what to do.
    """

    def __init__(self, *args: object):
        super().__init__(*args)
        self.add_note(f"causes and cures: oneir explain {type(self).__name__}")


class InternalError(OneIRError, RuntimeError):
    """A state that should be impossible: a defect of OneIR, not of the program that it was given.

    Please report it, with the program and the whole traceback (`oneir --traceback …` shows it). Until it is mended,
    another way to say the same often works: `oneir show MODEL --stages` says which passes run, and `VerifyWellFormed`
    and `VerifyNumerics` (`oneir.testing`) after which one it goes wrong: docs/tutorials/find-the-broken-pass.md.
    """


class TypeMismatch(OneIRError, TypeError):
    """A value of another type or dtype than the one expected.

    - **An argument of a compiled function** has another dtype. Convert it (`x.astype("float32")`,
      `x.to(torch.float32)`): programs do not convert, since that would hide a copy. NumPy makes float64 where nothing
      else is said.
    - **Operands of a script** have two dtypes. Write the cast: `T.Cast("int64", i)`, `R.astype(x, "float32")`.
    - **An operator of a graph** is not for this dtype; the message names the argument and what it may be.
    - **A call from Python** got, say, a list where an expression is expected; the message names both.
    """


class ShapeMismatch(OneIRError, ValueError):
    """A tensor or expression of another rank, shape or layout than the one expected.

    An extent's name in the message, such as `n`, is a symbol: it is what the first argument that has it says, and all
    others must agree.

    - **A model of one fixed size** is given another. Import it with a symbolic extent: docs/tutorials/first-model.md.
    - **A dimension of the batch is missing**: `x[None]` adds one.
    - **Dimensions in another order**, such as channels last: `x.transpose(0, 3, 1, 2)`.
    - **Strides**: a view that is not contiguous where the program wants it so: `numpy.ascontiguousarray(x)`.
    """


class InvalidValue(OneIRError, ValueError):
    """A value of the right type that is not acceptable.

    An axis out of range, a file that is not there or damaged, an unknown name of an option. The message says what is
    allowed, and with a name that is nearly right which one may be meant. On the command line `--help` of each command
    has examples; options of passes and targets are listed in the documentation, under "Options and facts".
    """


class AssertionFailure(OneIRError, AssertionError):
    """A condition stated by the program (`assert`, `T.Assert`) that did not hold when it ran.

    Or `oneir.testing` found that two programs compute different numbers, and says where and by how much. If a pass made
    the one of the other, docs/tutorials/find-the-broken-pass.md goes on from here. Differences of a few units in the
    last place come from another order of a sum; more than that is a mistake in one of the two.
    """


class ExecutionError(OneIRError, RuntimeError):
    """A compiled program that failed while it ran.

    Most often a Python function that it calls (`call_dps_packed`, `call_packed`) raised an error, which is named, or
    was none of this process; or functions call one another without end. The lines below the message say in which
    instruction of which function.
    """


class NotRegistered(OneIRError, ValueError):
    """A name that no registry knows: of a packed function, an operator, an attribute, a target.

    A near name is suggested.

    - **A packed function** must be registered in the process that runs the program, too, before it is called:
      `oneir.register_func`.
    - **An operator** of your own is there once the module that states it was imported: docs/tutorials/own-operator.md.
    - **An option of `PassContext`** must be declared: those that are there stand in the documentation, under "Options
      and facts".
    """


class UnknownFunction(NotRegistered, AttributeError):
    """A module has no function of the name that was asked for.

    The message lists those that it has. Functions without a `global_symbol`, such as private ones, cannot be called
    from outside: give the function one, `func.with_attr("global_symbol", "name")`, and compile again. A function of a
    graph is called through `oneir.relax.VirtualMachine(executable, device)`.
    """


class NotInitialized(OneIRError, RuntimeError):
    """An object that is used before it was given what it needs.

    A program whose weights were not set, a builder outside of `with builder.function(...)`, a random variable before
    its schedule has run. The message names what is missing; the call that gives it comes first.
    """


class DeviceError(OneIRError, RuntimeError):
    """A device that cannot be reached, or that cannot do what was asked of it.

    - **It is not there**: `oneir doctor` lists devices, and what is missing to use them.
    - **A tensor lies on another device** than the program: copy it, `x.copyto(device)`.
    - **It has no more memory**: a smaller batch, or fewer programs at the same time.
    - **Another machine** (`oneir.rpc`) does not answer: is `oneir rpc-server` running there? docs/rpc.md.
    """


class RPCError(DeviceError):
    """A session with another process that could not be opened, or has ended.

    - **It has ended**: what was called there has crashed, or its process was killed, for memory, for instance. The
      server goes on; connect anew, and call with less.
    - **The key** of the server is another one: it is a name, and `connect` must say the same one. A server of a tracker
      is asked for there: `oneir.rpc.connect_tracker(address, port).request(key)`.
    - **A session through another server** is `session_constructor_args=["rpc.Connect", address, port, key]`; the server
      must reach that address itself. docs/rpc.md.
    """


class RPCSessionTimeoutError(RPCError, TimeoutError):
    """A session has ended since its time was over.

    `session_timeout` of `oneir.rpc.connect` is how many seconds the session may take in all, from the beginning. What
    the other side was doing then has ended with it. Connect anew with a longer time, or with 0, which stands for none.
    """


class LibraryError(OneIRError, OSError):
    """A library or object file that is missing, malformed or made for another machine.

    - **Of another release**, or damaged: export it again from the model; compiled files are not for keeping:
      docs/install.md.
    - **Of another processor**: compile for the oldest one that must run it, `target="llvm -mcpu=x86-64-v3"`, or for the
      other one: docs/cross.md.
    - **A system library** such as a driver's is not found: the message names it, and `oneir doctor` says what to
      install.
    """


class CompileError(OneIRError, RuntimeError):
    """A program that cannot be compiled for the given target.

    An instruction that the target does not have, a kernel that uses more shared memory or threads than a device allows,
    source text that its compiler refuses. The message names the kernel:
    `oneir show MODEL --stage scheduled --function NAME` shows it. A schedule of yours may ask for too much; a default
    schedule that does is a defect of OneIR, worth a report.
    """


class ParseError(OneIRError, SyntaxError):
    """A script that cannot be parsed; the text carries the rendered source line.

    The parser reads scripts and does not run them, so Python's own functions are not there inside of them. Values from
    outside can be used where a constant can stand. docs/tutorials/tvmscript.md shows what there is, and "The grammar of
    programs" in the documentation has all of it.

    `message` is the text without the source line, and `span`, an `ir.Span`, says where it is; None where that is not
    known.
    """

    message: str = ""
    span: object = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class WellFormedError(OneIRError, ValueError):
    """A module that breaks a rule of the program representation; `span` says where, if that is known.

    A variable that is used but not defined, or defined twice; a call of a function that does not exist; a block whose
    axes its loops do not cover. If a pass of yours made it, `PassContext(instruments=[VerifyWellFormed()])`
    (`oneir.testing`) says after which pass: docs/tutorials/find-the-broken-pass.md.
    """

    span: object = None


class ScheduleError(OneIRError, RuntimeError):
    """A schedule primitive that cannot be applied to the given block or loop.

    It would change the result, or needs what is not there. The message shows the program with the block or loop that is
    to blame underlined, and the condition. The schedule stays as it was, so another primitive can be tried on it. Often
    an earlier one has to come later (`decompose_reduction` comes last), or loops must be reordered or fused first:
    docs/tutorials/schedule.md.
    """


class InterpreterError(OneIRError, RuntimeError):
    """A program that did something undefined while the reference interpreter ran it.

    It finds what native code would not notice: a read out of bounds or of what was never written, an access that a
    block does not declare, two iterations of a parallel loop that touch one element. The statement is shown. The
    program is wrong, or the pass that made it: docs/tutorials/find-the-broken-pass.md.
    """


class UnsupportedError(OneIRError, NotImplementedError):
    """A well-formed request that is not supported.

    - **An operator without a converter**: errors of importers name all such operators at once, with the lines of your
      model. With `torch.compile`, PyTorch runs what is not supported unless `fallback` is off. A converter of your own:
      docs/contribute/torch-converter.md, docs/contribute/onnx-converter.md.
    - **A target without a back end**, or a feature that this one lacks: docs/contribute/back-end.md.

    docs/roadmap.md says what is not there yet.
    """
