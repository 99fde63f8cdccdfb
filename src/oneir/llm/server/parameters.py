"""What the bodies of completions and chats have in common: how tokens are chosen, and how many answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...runtime.error import InvalidValue
from ..engine.sampling import SamplingParams
from .errors import APIError
from .fields import Fields

MAX_ANSWERS = 128
"""The most answers to one request."""


@dataclass(frozen=True)
class Parameters:
    """What was asked for."""

    model: str
    sampling: SamplingParams
    count: int
    """Answers to each prompt."""
    stream: bool
    include_usage: bool
    """Whether a stream ends with the numbers of tokens."""


def read_parameters(body: Fields, model: str, **given: Any) -> Parameters:
    """The parameters of a request; `given` are sampling parameters that an endpoint reads in its own way.

    Raises `APIError` for what is no number, say, and for a number that makes no sense.
    """
    count = body.within("n", int, 1, MAX_ANSWERS)
    temperature = body.within("temperature", float, 0, 2)
    values = {
        "temperature": 1.0 if temperature is None else temperature,
        "top_p": body.within("top_p", float, 0, 1),
        "top_k": body.get("top_k", int),
        "min_p": body.get("min_p", float),
        "repetition_penalty": body.get("repetition_penalty", float),
        "presence_penalty": body.within("presence_penalty", float, -2, 2),
        "frequency_penalty": body.within("frequency_penalty", float, -2, 2),
        "seed": body.get("seed", int),
        "ignore_eos": body.get("ignore_eos", bool),
        "stop_token_ids": body.get("stop_token_ids", list),
        "logit_bias": _bias(body),
        "stop": _stop(body),
        **_form(body),
        **given,
    }
    if values["top_k"] == -1:  # as other servers write "all"
        values["top_k"] = 0
    try:
        sampling = SamplingParams(**{name: value for name, value in values.items() if value is not None})
    except InvalidValue as error:
        name = str(error).split()[0]
        param = name if name.partition("[")[0] in values else None
        raise APIError(400, str(error), param=param, code="invalid_value") from None
    include_usage = body.object("stream_options").get("include_usage", bool)
    return Parameters(model, sampling, count or 1, body.get("stream", bool) or False, include_usage or False)


def _stop(body: Fields) -> list[str] | None:
    if isinstance(body.values.get("stop"), str):
        return [body.require("stop", str)]
    return body.get("stop", list)


def _bias(body: Fields) -> dict[int, float] | None:
    """Tokens are keys of a JSON object, and so strings."""
    bias = body.get("logit_bias", dict)
    if bias is None:
        return None
    wrong = next((key for key in bias if not key.isdecimal()), None)
    if wrong is not None:
        raise body.error("logit_bias", f"expected numbers of tokens as keys, found {wrong!r}")
    return {int(key): value for key, value in bias.items()}


def _form(body: Fields) -> dict[str, Any]:
    """The form of the answer: OpenAI's `response_format`, or, as vLLM has it, `structured_outputs`."""
    form = body.object("response_format")
    match form.get("type", str):
        case None | "text":
            pass
        case "json_object":
            return {"json_schema": True}
        case "json_schema":
            return {"json_schema": form.object("json_schema").require("schema", dict)}
        case other:
            raise form.error("type", f'expected "text", "json_object" or "json_schema", found "{other}"')
    other = body.object("structured_outputs")
    return {
        "json_schema": other.get("json", dict),
        "regex": other.get("regex", str),
        "grammar": other.get("grammar", str),
    }
