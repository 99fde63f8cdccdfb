"""`/v1/embeddings`: vectors of texts."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np

from ..engine.engine import Engine
from .completions import read_prompts
from .fields import Fields


async def embeddings(body: Fields, model: str, engine: Engine) -> dict[str, Any]:
    """The body of a response. Raises `APIError`, and what `Engine.embed` raises."""
    form = body.get("encoding_format", str) or "float"
    if form not in ("float", "base64"):
        raise body.error("encoding_format", f'expected "float" or "base64", found "{form}"', code="invalid_value")
    dimensions = body.within("dimensions", int, 1)
    prompts = await asyncio.to_thread(read_prompts, body, "input", engine.tokenizer)
    vectors = await asyncio.wrap_future(engine.embed(prompts))
    if dimensions is not None:
        size = min((vector.size for vector in vectors), default=dimensions)
        if dimensions > size:
            message = f"expected at most {size}, which the model's vectors have, found {dimensions}"
            raise body.error("dimensions", message, code="invalid_value")
        vectors = [_shortened(vector, dimensions) for vector in vectors]
    data = [
        {"object": "embedding", "index": i, "embedding": _as_base64(vector) if form == "base64" else vector.tolist()}
        for i, vector in enumerate(vectors)
    ]
    count = sum(map(len, prompts))
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": count, "total_tokens": count}}


def _shortened(vector: np.ndarray, dimensions: int) -> np.ndarray:
    """The first elements of a vector, with the norm that all had."""
    short = vector[:dimensions]
    norm = np.linalg.norm(short)
    return short if norm == 0 else short * (np.linalg.norm(vector) / norm)


def _as_base64(vector: np.ndarray) -> str:
    """The bytes of little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
