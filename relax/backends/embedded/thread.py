"""The thread in which the embedded engine computes.

    asyncio side                     this thread
    submit(request) ──► waiting ──►  admit ─► sample ─► advance ─► sample …
    call(function)  ──► calls   ──►  run between two tokens

Everything that touches the model runs here, one thing after the other, so nothing needs
a lock but the two queues. Each request has a `concurrent.futures.Future` that is
resolved as soon as that request ends, not when its batch does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch

from relax.backends.embedded.decode import DecodeBatch, Response, Row
from relax.backends.embedded.model import LoadedModel
from relax.backends.embedded.stopping import StopText
from relax.backends.embedded.waiting import WaitingRows
from relax.backends.embedded.weights import EngineWeights
from relax.backends.rollout import ABORTED, GenerateOutput, GenerateRequest
from relax.errors import EngineDied, EngineError

T = TypeVar("T")


class EngineThread:
    """Decodes requests batch by batch until closed.

    Args:
        loaded: The model.
        batch_size: Most requests decoded together.
        num_threads: Of torch, for this thread.
    """

    def __init__(
        self, loaded: LoadedModel, *, batch_size: int, num_threads: int
    ) -> None:
        self.weights = EngineWeights(loaded.module)
        self.num_generated = 0
        self._loaded = loaded
        self._batch_size = batch_size
        self._num_threads = num_threads
        self._changed = threading.Condition()
        self._waiting = WaitingRows(self._changed, enough=batch_size)
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._closing = False
        self._dead: EngineDied | None = None
        self._paused = False
        self._batch: DecodeBatch | None = None
        self._num_running = 0
        self._unanswered: set[Future[Any]] = set()
        self._updates_wanted: deque[tuple[str, Future[None]]] = deque()
        self._thread = threading.Thread(
            target=self._run, name="embedded-engine", daemon=True
        )

    def start(self) -> None:
        """Start computing."""
        self._thread.start()

    def submit(self, request: GenerateRequest) -> Future[GenerateOutput]:
        """Queue one request.

        Raises:
            EngineError: It does not fit the context, or asks for no token.
            EngineDied: The thread ended.
        """
        limit, stop_text = self._limit(request), self._stop_text(request)
        with self._changed:
            ticket: Future[GenerateOutput] = self._promise()
            row = Row(request=request, limit=limit, ticket=ticket, stop_text=stop_text)
            self._waiting.add(row)
        return ticket

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` in the thread, between two tokens.

        Raises:
            EngineDied: The thread ended.
        """
        with self._changed:
            future: Future[T] = self._promise()
            self._calls.append((function, future))
            self._changed.notify()
        return future

    def begin_update(self, version: str) -> Future[None]:
        """Open a weight update once nothing is being generated."""
        future: Future[None] = self._promise()
        self.call(lambda: self._want_update(version, future))
        return future

    def pause(self) -> None:
        """Stop decoding; to be run by `call`."""
        self._paused = True

    def resume(self) -> None:
        """Go on decoding; to be run by `call`."""
        self._paused = False

    def abort(self) -> int:
        """End everything that runs or waits; to be run by `call`."""
        responses = [_nothing(row) for row in self._waiting.take(len(self._waiting))]
        if self._batch is not None:
            responses += self._batch.abort()
            self._batch = None
            self._num_running = 0
        for response in responses:
            self._resolve(response)
        return len(responses)

    def state(self) -> dict[str, Any]:
        """Counts and flags, readable from any thread."""
        return {
            "alive": self._dead is None and self._thread.is_alive(),
            "running": self._num_running,
            "waiting": len(self._waiting),
            "paused": self._paused,
            "updating": self.weights.updating,
            "weights_torn": self.weights.torn,
            "weight_version": self.weights.version,
            "generated_tokens": self.num_generated,
            "num_threads": self._num_threads,
        }

    def close(self) -> None:
        """End the thread; requests still there fail with `EngineDied`."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    # What follows runs in the thread.

    def _run(self) -> None:
        torch.set_num_threads(self._num_threads)
        error = EngineDied("the embedded engine was closed")
        try:
            while self._wait_for_work():
                self._make_calls()
                self._open_update()
                if not self._paused:
                    self._decode_one()
        except Exception as cause:  # noqa: BLE001 - handed to everyone who waits
            error = EngineDied(f"the embedded engine's thread ended: {cause!r}")
            error.__cause__ = cause
        self._fail_all(error)

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; False when closing."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._closing
                    or bool(self._calls)
                    or self._can_open_update()
                    or self._can_decode()
                )
            )
            return not self._closing

    def _can_open_update(self) -> bool:
        return self._batch is None and bool(self._updates_wanted)

    def _can_decode(self) -> bool:
        if self._paused:
            return False
        return self._batch is not None or (
            bool(self._waiting) and not self.weights.updating
        )

    def _make_calls(self) -> None:
        while self._calls:
            function, future = self._calls.popleft()
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - belongs to the caller
                future.set_exception(error)

    def _want_update(self, version: str, future: Future[None]) -> None:
        if self._paused and self._batch is not None:
            future.set_exception(
                EngineError(
                    f"{self._num_running} requests are paused and would never "
                    "finish, so the weights cannot be updated",
                    hint="abort or resume them first",
                )
            )
            return
        self._updates_wanted.append((version, future))

    def _open_update(self) -> None:
        if self._can_open_update():
            version, future = self._updates_wanted.popleft()
            try:
                self.weights.begin(version)
                future.set_result(None)
            except EngineError as error:
                future.set_exception(error)

    def _decode_one(self) -> None:
        """One token for every row, with requests admitted before and ended after."""
        batch = self._batch
        if batch is not None:
            batch.advance()
        self._admit()
        batch = self._batch
        if batch is None:
            return
        self._num_running = batch.num_live
        self.num_generated += self._num_running
        ended = batch.sample()
        self._num_running -= len(ended)
        for response in ended:
            self._resolve(response)
        if self._num_running == 0:
            self._batch = None
        elif 2 * self._num_running <= batch.num_rows:
            batch.compact()

    def _admit(self) -> None:
        """Prefill waiting requests when they all fit, or half the places are free."""
        if self._updates_wanted or self.weights.updating or not self._waiting:
            return
        if self._batch is None:
            self._waiting.gather(lambda: self._closing)
        free = self._batch_size - self._num_running
        if len(self._waiting) > free and 2 * free < self._batch_size:
            return
        rows = [row for row in self._waiting.take(free) if self._accepts(row)]
        if not rows:
            return
        new = DecodeBatch.prefill(self._loaded, rows)
        if self._batch is None:
            self._batch = new
        else:
            self._batch.compact()
            self._batch.join(new)

    def _accepts(self, row: Row) -> bool:
        """Whether the row may run; fails it otherwise."""
        if self.weights.torn:
            row.ticket.set_exception(
                EngineError(
                    "the last weight update was incomplete, so the engine holds a mix "
                    "of two versions",
                    hint="send all tensors again",
                )
            )
            return False
        return True

    def _resolve(self, response: Response) -> None:
        response.row.ticket.set_result(
            GenerateOutput(
                output_ids=response.output_ids,
                log_probs=response.log_probs,
                finish=response.finish,
                stop_reason=response.stop_reason,
                weight_version=self.weights.version,
            )
        )

    def _fail_all(self, error: EngineDied) -> None:
        with self._changed:
            self._dead = error
            self._waiting.take(len(self._waiting))
            self._calls.clear()
        self._batch = None
        self._num_running = 0
        for future in list(self._unanswered):
            future.set_exception(error)

    # What follows runs in the caller's thread.

    def _promise(self) -> Future[Any]:
        """A future that will be answered, at the latest when the thread ends."""
        future: Future[Any] = Future()
        # Running: its waiter cannot cancel it between a check and the answer.
        future.set_running_or_notify_cancel()
        with self._changed:
            if self._dead is not None:
                raise self._dead
            if self._closing:
                raise EngineDied("the embedded engine is being closed")
            self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        return future

    def _limit(self, request: GenerateRequest) -> int:
        """Longest response that the request and the context allow."""
        ids, name = request.input_ids, request.request_id
        wanted = request.sampling.max_new_tokens
        context = self._loaded.context_length
        vocab_size = self._loaded.module.config.vocab_size
        if not ids or wanted < 1:
            raise EngineError(
                f"request {name} has {len(ids)} prompt tokens and may have {wanted} "
                "new ones; both must be at least 1"
            )
        if not 0 <= min(ids) <= max(ids) < vocab_size:
            raise EngineError(
                f"request {name} has token ids from {min(ids)} to {max(ids)}, the "
                f"model knows 0 to {vocab_size - 1}",
                hint="tokenizer and model must be of the same checkpoint",
            )
        if len(ids) >= context:
            raise EngineError(
                f"the prompt of request {name} has {len(ids)} tokens, the model's "
                f"context {context}",
                hint="set --rollout-max-prompt-len to drop such prompts",
            )
        return min(wanted, context - len(ids))

    def _stop_text(self, request: GenerateRequest) -> StopText | None:
        sampling = request.sampling
        if not sampling.stop:
            return None
        return StopText(
            sampling.stop,
            tokenizer=self._loaded.tokenizer,
            skip_special_tokens=sampling.skip_special_tokens,
        )


def _nothing(row: Row) -> Response:
    """What a request has that never ran."""
    return Response(
        row=row,
        output_ids=(),
        log_probs=torch.zeros(0).numpy(),
        finish="abort",
        stop_reason=ABORTED,
    )
