"""What a rollout engine must offer: the seam between rollout functions and engines.

The embedded engine and the SGLang client implement `RolloutBackend`; rollout functions
know nothing else of them. Requests and outputs are plain values without tensors of any
framework, so that a process which only tokenizes and schedules never imports torch.

    generate ──► GenerateOutput            one request, answered when *it* is finished
    abort                                   what runs comes back, cut short
    begin_weight_update ─► update_weights* ─► end_weight_update
    pause / resume                          stop between two tokens, go on

A weight update waits until nothing is being generated: no response is ever sampled from
two versions of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Finish = Literal["stop", "length", "abort"]

EOS = "eos"
STOP_TOKEN = "stop_token"  # noqa: S105 - the name of a stop reason, not a secret
STOP_STRING = "stop_string"
LENGTH = "length"
CONTEXT = "context"
ABORTED = "abort"
"""Values of `GenerateOutput.stop_reason`.

``eos``, ``stop_token`` and ``stop_string`` come with finish ``stop``; ``length`` (the
request's own limit) and ``context`` (the model's) with finish ``length``.
"""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How to sample one response.

    Attributes:
        temperature: Logits are divided by it; 0 means greedy, and log-probs are then
            those of temperature 1.
        top_p: Smallest set of tokens whose probability reaches it; 1.0 keeps all.
        top_k: Number of tokens kept; -1 keeps all. Both cuts are made on the whole
            distribution.
        max_new_tokens: Longest response, the stop token included.
        stop: Texts that end the response. The tokens that complete one are kept.
        stop_token_ids: Tokens that end the response, besides the model's own.
        seed: Same seed, same draws, whatever else is being generated; None draws anew.
        skip_special_tokens: Whether stop texts are looked for in text without special
            tokens.
    """

    temperature: float
    top_p: float
    top_k: int
    max_new_tokens: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    seed: int | None
    skip_special_tokens: bool


@dataclass(frozen=True, kw_only=True)
class Together:
    """Requests that are sent at once.

    What is computed together decides the last bits. An engine that may wait a moment
    for all of them, and takes them by number, gives the same bits every time.

    Attributes:
        name: Of this set of requests; no other set has it.
        number: Of the request among them, from 0.
        count: How many there are.
    """

    name: str
    number: int
    count: int

    def share(self, engines: int) -> Together:
        """The same as one of several engines sees it, to which they go in turn."""
        own = self.number % engines
        return replace(
            self,
            number=self.number // engines,
            count=-(-(self.count - own) // engines),
        )


@dataclass(frozen=True, kw_only=True)
class GenerateRequest:
    """One prompt to continue.

    Attributes:
        request_id: Names the request in errors and logs.
        input_ids: Token ids of the prompt.
        sampling: How to sample.
        together: The requests that it is sent with; None when it comes alone.
    """

    request_id: str
    input_ids: tuple[int, ...]
    sampling: SamplingParams
    together: Together | None = None


@dataclass(frozen=True, kw_only=True)
class GenerateOutput:
    """The response to one request.

    Attributes:
        output_ids: Token ids of the response, R of them, the stop token included.
        log_probs: float32 [R]: log-softmax of ``logits / temperature`` at the sampled
            ids, over the whole vocabulary, i.e. before ``top_p`` and ``top_k`` cut.
            Non-finite values are handed on as they are. None when the engine gave
            none, which fails the sample.
        finish: Why it ended, as upstream's finish reasons.
        stop_reason: The same in more detail, e.g. ``eos``, ``context``.
        weight_version: Version of the weights that all R tokens were sampled from.
    """

    output_ids: tuple[int, ...]
    log_probs: NDArray[np.float32] | None
    finish: Finish
    stop_reason: str
    weight_version: str


class RolloutBackend(Protocol):
    """A rollout engine. All methods may be called from one asyncio event loop."""

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Continue a prompt.

        Raises:
            EngineError: This request cannot be served; others are not affected.
            EngineDied: The engine is gone.
        """
        ...

    async def abort(self) -> int:
        """End all requests that run or wait now; they return what they have.

        Returns:
            How many were aborted; each returned with finish ``abort``.
        """
        ...

    async def begin_weight_update(self, version: str) -> None:
        """Wait until nothing is being generated and open an update to ``version``.

        Raises:
            EngineError: An update is open, or paused requests would never finish.
        """
        ...

    async def update_weights(self, bucket: Mapping[str, Any]) -> None:
        """Take tensors by Hugging Face name, in place.

        Args:
            bucket: Torch tensors or numpy arrays; any split of the model in buckets.

        Raises:
            EngineMismatch: A tensor that the model does not have, has in another shape
                or another type; names the tensor.
        """
        ...

    async def end_weight_update(self) -> str:
        """Close the update and let requests through again.

        Returns:
            Fingerprint (`relax.backends.fingerprint`) over what the engine now holds.

        Raises:
            EngineMismatch: Tensors of the model were not sent; names them. The engine
                refuses requests until a complete update arrives.
        """
        ...

    async def weights_digests(self) -> Mapping[str, str]:
        """What it holds now: sha256 of each tensor by its Hugging Face name."""
        ...

    async def pause(self) -> None:
        """Stop between two tokens; returns once nothing is being computed."""
        ...

    async def resume(self) -> None:
        """Go on where `pause` stopped."""
        ...

    async def health(self) -> dict[str, Any]:
        """State as plain data: ``alive``, ``running``, ``waiting``, ``paused``, …."""
        ...

    async def close(self) -> None:
        """End the engine; requests still running fail with `EngineDied`."""
        ...
