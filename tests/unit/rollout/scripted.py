"""An engine that answers from a script, and a tokenizer of one id a character."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import numpy as np

from relax.backends.rollout import GenerateOutput, GenerateRequest
from relax.engine.rewards.outcome import ScoreOutcome
from relax.engine.rollout.context import RolloutClient

END = "$"
"""The end token of the script's texts."""


class CharacterTokenizer:
    def encode(self, text, *, add_special_tokens=True):
        return [ord(character) for character in text]

    def decode(self, token_ids, *, skip_special_tokens=False):
        text = "".join(map(chr, token_ids))
        return text.replace(END, "") if skip_special_tokens else text

    def apply_chat_template(self, conversation, **options):
        tools = f"[{len(options['tools'])} tools]" if options.get("tools") else ""
        said = "".join(f"<{m['role']}>{m['content']}" for m in conversation)
        return f"{tools}{said}<assistant>"


def output(text: str = "42$", **changes) -> GenerateOutput:
    fields = {
        "output_ids": tuple(map(ord, text)),
        "log_probs": np.full(len(text), -0.5, dtype=np.float32),
        "finish": "stop" if text.endswith(END) else "length",
        "stop_reason": "eos" if text.endswith(END) else "length",
        "weight_version": "3",
    }
    return GenerateOutput(**{**fields, **changes})


class ScriptedEngine:
    """Answers requests by ``script(request)``: an output, an error, or None to hang.

    A request that hangs comes back when it is aborted.
    """

    def __init__(self, script: Callable[[GenerateRequest], object]) -> None:
        self.script = script
        self.requests: list[GenerateRequest] = []
        self.num_running = self.most_running = self.num_aborts = 0
        self.hanging: list[asyncio.Future] = []

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            await asyncio.sleep(0)
            answer = self.script(request)
            if answer is None:
                future = asyncio.get_running_loop().create_future()
                self.hanging.append(future)
                return await future
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            self.num_running -= 1

    async def abort(self) -> int:
        self.num_aborts += 1
        futures, self.hanging = self.hanging, []
        for future in futures:
            future.set_result(output("4", finish="abort", stop_reason="abort"))
        return len(futures)


class ScriptedScorer:
    """Scores by ``rule(sample)`` and keeps what it was asked."""

    def __init__(self, rule=lambda sample: 1.0) -> None:
        self.rule = rule
        self.calls: list[list[int]] = []

    async def score(self, samples):
        self.calls.append([sample.index for sample in samples])
        found = [self.rule(sample) for sample in samples]
        return [
            reward
            if isinstance(reward, ScoreOutcome)
            else ScoreOutcome(reward=float(reward))
            for reward in found
        ]


def client(engine, *, scorer=None, **changes) -> RolloutClient:
    fields = {
        "backend": engine,
        "tokenizer": CharacterTokenizer(),
        "reward": scorer or ScriptedScorer(),
        "log": logging.getLogger("scripted"),
    }
    return RolloutClient(**{**fields, **changes})
