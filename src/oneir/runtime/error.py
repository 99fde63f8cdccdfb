"""The errors that OneIR raises.

Every error that a user can meet derives from `OneIRError`. Where Python has a natural class for the mistake, the error
derives from that class too, so both of these work:

    except oneir.OneIRError: ...
    except ValueError: ...
"""

from __future__ import annotations


class OneIRError(Exception):
    """Base of all errors of this project."""


class InternalError(OneIRError, RuntimeError):
    """A state that should be impossible: a defect of OneIR, not of the program that it was given."""


class TypeMismatch(OneIRError, TypeError):
    """A value of another type or dtype than the one expected."""


class ShapeMismatch(OneIRError, ValueError):
    """A tensor or expression of another rank, shape or layout than the one expected."""


class InvalidValue(OneIRError, ValueError):
    """A value of the right type that is not acceptable."""


class AssertionFailure(OneIRError, AssertionError):
    """A condition stated by the program (`assert`, `T.Assert`) that did not hold when it ran."""


class ExecutionError(OneIRError, RuntimeError):
    """A compiled program that failed while it ran."""


class NotRegistered(OneIRError, ValueError):
    """A name that no registry knows: of a packed function, an operator, an attribute, a target."""


class NotInitialized(OneIRError, RuntimeError):
    """An object that is used before it was given what it needs."""


class DeviceError(OneIRError, RuntimeError):
    """A device that cannot be reached, or that cannot do what was asked of it."""


class LibraryError(OneIRError, OSError):
    """A library or object file that is missing, malformed or made for another machine."""


class CompileError(OneIRError, RuntimeError):
    """A program that cannot be compiled for the given target."""


class ParseError(OneIRError, SyntaxError):
    """A script that cannot be parsed; the text carries the rendered source line.

    `message` is the text without that line, and `span`, an `ir.Span`, says where it is; None where that is not known.
    """

    message: str = ""
    span: object = None

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class WellFormedError(OneIRError, ValueError):
    """A module that breaks a rule of the program representation; `span` says where, if that is known."""

    span: object = None


class ScheduleError(OneIRError, RuntimeError):
    """A schedule primitive that cannot be applied to the given block or loop."""


class InterpreterError(OneIRError, RuntimeError):
    """A program that did something undefined while the reference interpreter ran it."""


class UnsupportedError(OneIRError, NotImplementedError):
    """A well-formed request that is not supported."""
