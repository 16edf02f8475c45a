"""What ``/generate`` answers, as a `GenerateOutput`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relax.backends.rollout import (
    ABORTED,
    CONTEXT,
    EOS,
    LENGTH,
    STOP_STRING,
    STOP_TOKEN,
    Finish,
    GenerateOutput,
    GenerateRequest,
)
from relax.errors import EngineError, EngineMismatch


def request_body(
    request: GenerateRequest, *, rid: str, max_new_tokens: int, seeded: bool
) -> dict[str, Any]:
    """A request as ``/generate`` wants it.

    Args:
        request: What to continue and how.
        rid: The server's name for it; must be unique.
        max_new_tokens: After the context's end was taken into account.
        seeded: Whether this server draws by the request's seed.
    """
    sampling = request.sampling
    params: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "max_new_tokens": max_new_tokens,
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_token_ids),
        "skip_special_tokens": sampling.skip_special_tokens,
        "spaces_between_special_tokens": False,
    }
    if seeded and sampling.seed is not None:
        # Its kernels take 32 bits.
        params["sampling_seed"] = sampling.seed & 0x7FFF_FFFF
    return {
        "rid": rid,
        "input_ids": list(request.input_ids),
        "sampling_params": params,
        "return_logprob": True,
    }


def parse_output(
    answer: Any, *, request: GenerateRequest, end_ids: Set[int], cut: bool
) -> GenerateOutput:
    """Reads an answer.

    Args:
        answer: The JSON.
        request: What was asked.
        end_ids: The model's own end tokens.
        cut: Whether the context, not the request, set ``max_new_tokens``.

    Raises:
        EngineError: The server could not serve the request; carries its words.
        EngineMismatch: The answer does not fit the request, or itself.
    """
    try:
        meta: Mapping[str, Any] = answer["meta_info"]
        ids = tuple(int(token) for token in answer["output_ids"] or ())
        reason: Mapping[str, Any] = meta["finish_reason"]
        kind = reason["type"]
    except (KeyError, TypeError, ValueError) as error:
        raise EngineMismatch(
            f"the answer to {request.request_id} has not the form of one: {error!r}"
        ) from error
    if kind == "abort" and (reason.get("status_code") or 0) >= 400:
        raise EngineError(str(reason.get("message")), where=request.request_id)
    finish, stop_reason = _finish(reason, request=request, end_ids=end_ids, cut=cut)
    return GenerateOutput(
        output_ids=ids,
        log_probs=_log_probs(meta, ids=ids, request_id=request.request_id),
        finish=finish,
        stop_reason=stop_reason,
        weight_version=_weight_version(meta, request_id=request.request_id),
    )


def _finish(
    reason: Mapping[str, Any],
    *,
    request: GenerateRequest,
    end_ids: Set[int],
    cut: bool,
) -> tuple[Finish, str]:
    match reason["type"], reason.get("matched"):
        case "abort", _:
            return "abort", ABORTED
        case "length", _:
            return "length", CONTEXT if cut else LENGTH
        case "stop", int(token):
            own = token in end_ids and token not in request.sampling.stop_token_ids
            return "stop", EOS if own else STOP_TOKEN
        case "stop", str():
            return "stop", STOP_STRING
        case "stop", None:
            return "stop", EOS
    raise EngineMismatch(
        f"{request.request_id} ended for a reason that is not known: {reason}"
    )


def _log_probs(
    meta: Mapping[str, Any], *, ids: Sequence[int], request_id: str
) -> NDArray[np.float32] | None:
    entries = meta.get("output_token_logprobs")
    if entries is None:
        return None if ids else np.zeros(0, np.float32)
    told = [int(entry[1]) for entry in entries]
    if len(told) == len(ids) and told != list(ids):
        raise EngineMismatch(
            f"the log-probs of {request_id} are those of other tokens: {told[:8]}… "
            f"against {list(ids[:8])}…"
        )
    # JSON has no NaN: SGLang's writer makes it null, and it must not become a number.
    values = [np.nan if entry[0] is None else entry[0] for entry in entries]
    return np.asarray(values, dtype=np.float32)


def _weight_version(meta: Mapping[str, Any], *, request_id: str) -> str:
    spans = meta.get("weight_versions") or ()
    versions = {str(span["version"]) for span in spans}
    if len(versions) > 1:
        raise EngineMismatch(
            f"{request_id} was sampled from weights {', '.join(sorted(versions))}; an "
            "update must wait until nothing is being generated"
        )
    return versions.pop() if versions else str(meta.get("weight_version", ""))
