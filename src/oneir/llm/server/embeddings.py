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
    prompts = await asyncio.to_thread(read_prompts, body, "input", engine.tokenizer)
    vectors = await asyncio.wrap_future(engine.embed(prompts))
    data = [
        {"object": "embedding", "index": i, "embedding": _as_base64(vector) if form == "base64" else vector.tolist()}
        for i, vector in enumerate(vectors)
    ]
    count = sum(map(len, prompts))
    return {"object": "list", "data": data, "model": model, "usage": {"prompt_tokens": count, "total_tokens": count}}


def _as_base64(vector: np.ndarray) -> str:
    """The bytes of little-endian float32."""
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
