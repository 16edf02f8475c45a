"""Logs as the engines print them, made from numbers; written from the formats page."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BLUE, OFF = "\x1b[36m", "\x1b[0m"


@dataclass
class PrintedLog:
    """A log line by line; time moves on with each.

    Args:
        ray: Whether Ray's prefix stands before each line.
        colours: Whether lines are coloured.
    """

    ray: bool = True
    colours: bool = True
    seconds: float = 36_000.0
    lines: list[str] = field(default_factory=list)

    def say(self, words: str, *, who: str = "RolloutManager", level: str = "INFO"):
        self.seconds += 0.25
        line = f"{self.stamp()} | {level} | relax.place:120 {words}"
        if self.colours:
            line = f"{BLUE}{line}{OFF}"
        self.raw(
            f"({who} pid={4000 + len(who)}, ip=10.0.0.7) {line}" if self.ray else line
        )

    def raw(self, line: str):
        self.lines.append(line)

    def stamp(self) -> str:
        whole = int(self.seconds)
        return f"2026-03-01 {whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"

    def wait(self, seconds: float):
        self.seconds += seconds

    def noise(self, count: int, seed: int = 0):
        draw = random.Random(seed)
        for _ in range(count):
            running, speed = draw.randrange(99), draw.random()
            self.say(
                f"Decode batch. #running-req: {running}, #queue-req: 0, "
                f"gen throughput (token/s): {speed:.2f}",
                who="SGLangEngine",
            )

    def rollout(self, number: int, values: Mapping[str, object], *, kind="rollout"):
        self.say(f"{kind} {number}: {printed(values)}")

    def step(self, number: int, values: Mapping[str, object], *, kind="step"):
        self.say(f"{kind} {number}: {printed(values)}", who="MegatronTrainRayActor")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def write(self, path):
        path.write_text(self.text(), encoding="utf-8")
        return path


def printed(values: Mapping[str, object]) -> str:
    """A dict as Python prints it; texts that begin with ``=`` go in as they are."""
    parts = []
    for key, value in values.items():
        as_it_is = isinstance(value, str) and value.startswith("=")
        parts.append(f"{key!r}: {str(value)[1:] if as_it_is else repr(value)}")
    return "{" + ", ".join(parts) + "}"


def healthy(
    num_rollouts: int = 3, *, steps: int = 1, response: str = "The answer is 42."
) -> PrintedLog:
    """A healthy run of upstream."""
    log = PrintedLog()
    for number in range(num_rollouts):
        log.say(f"Start rollout {number}/200")
        log.noise(5, seed=number)
        log.say(
            f"Finish rollout: ['What is 6 x 7? {response}'], label: 42, reward: 1.0"
        )
        log.rollout(number, {"rollout/raw_reward": 0.5, "rollout/truncated_ratio": 0.0})
        log.rollout(number, {"perf/rollout_time": 9.5}, kind="perf")
        kl = 0.0 if number == 0 else 0.002
        log.say(
            f"rollout {number}: "
            + printed(
                {"rollout/log_probs": -0.41, "rollout/ref_log_probs": -0.41 - kl}
            ),
            who="MegatronTrainRayActor",
        )
        for step in range(steps):
            log.step(number * steps + step, train_numbers(step))
    return log


def train_numbers(step: int = 0) -> dict[str, object]:
    return {
        "train/loss": 0.01,
        "train/ppo_kl": 0.0 if step == 0 else 0.0003,
        "train/train_rollout_logprob_abs_diff": 0.011,
        "train/grad_norm": 0.4,
        "train/lr-pg_0": 1e-06,
    }


def verl(rows: Sequence[Mapping[str, object]]) -> str:
    return "".join(
        f"(TaskRunner pid=77) step:{number} - "
        + " - ".join(f"{key}:{value}" for key, value in row.items())
        + "\n"
        for number, row in enumerate(rows, start=1)
    )
