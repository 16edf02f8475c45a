"""What a server can do: asked of it, not assumed from its version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relax.backends.sglang.api import SglangApi
from relax.errors import EngineMismatch


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Of one server.

    Attributes:
        version: SGLang's own.
        update_session: Weight updates stand between begin_ and end_weight_update.
        checksum: It has ``/weights_checker``.
        seeds: Requests draw by their own seed (deterministic inference only).
        memory: Its memory can be released and resumed. On a CPU asking ends it.
    """

    version: str
    update_session: bool
    checksum: bool
    seeds: bool
    memory: bool


async def probe(api: SglangApi, *, has_gpu: bool) -> Capabilities:
    """Asks a server for what it has.

    Raises:
        EngineMismatch: What answers is not SGLang.
    """
    described = await api.get("/openapi.json")
    paths = described.get("paths", {}) if isinstance(described, dict) else {}
    if "/update_weights_from_tensor" not in paths:
        raise EngineMismatch(
            "what answers there is not an SGLang server that takes weights",
            where=api.url,
        )
    info: dict[str, Any] = await api.get(
        "/server_info" if "/server_info" in paths else "/get_server_info"
    )
    return Capabilities(
        version=str(info.get("version", "unknown")),
        update_session="/begin_weight_update" in paths,
        checksum="/weights_checker" in paths,
        seeds=bool(info.get("enable_deterministic_inference")),
        memory=has_gpu and bool(info.get("enable_memory_saver")),
    )
