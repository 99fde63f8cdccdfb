"""Errors as OpenAI's clients expect them: a status, and a body that says what was wrong with which parameter."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from ...runtime.error import InvalidValue, UnsupportedError
from ...serving.http import HTTPError, error_text, retry_headers
from ..engine.request import ContextExceeded, EngineBusy, EngineClosed

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {401: "invalid_api_key", 413: "request_too_large"}


class APIError(HTTPError):
    """An error as OpenAI's interface describes them: with the parameter that is wrong, and a code."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None):
        super().__init__(status, message)
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        """What OpenAI's clients read."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": error_text(self), "type": kind, "param": self.param, "code": self.code}}


def as_api_error(error: Exception) -> APIError:
    """The status for an error of the engine; of others, whose text may be of no concern to clients, 500."""
    match error:
        case APIError():
            return error
        case HTTPError():
            return APIError(error.status, str(error), code=_CODES.get(error.status))
        case EngineBusy():
            return APIError(429, str(error), code="rate_limit_exceeded")
        case EngineClosed():
            return APIError(503, str(error), code="service_unavailable")
        case ContextExceeded():
            return APIError(400, str(error), code="context_length_exceeded")
        case UnsupportedError():
            return APIError(422, str(error), code="unsupported")
        case InvalidValue():
            return APIError(400, str(error), code="invalid_value")
        case _:
            return APIError(500, "the model failed; the server's log has more", code="internal_error")


def respond(error: Exception) -> JSONResponse:
    """The response for an error."""
    found = as_api_error(error)
    return JSONResponse(found.body, found.status, retry_headers(found.status))
