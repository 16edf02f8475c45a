"""Logs of real failures as generators: names, ranks, times and noise vary by seed.

Each case makes a log that must give one verdict, and a control that looks alike and
must not. The shapes of lines are those of the engines; the numbers are ours.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "dump" / "logs"))
from printed_logs import PrintedLog, healthy


@dataclass(frozen=True)
class LogCase:
    """A failure.

    Attributes:
        rule: The rule that must find it.
        fails: Words of the summary.
        words: Words that its likeliest causes must hold.
        make: Draws a log of it.
        control: Draws a healthy look-alike; None when there is none.
        status: Of the verdict.
        arguments: The run's.
        control_status: What the rule may say at most of the control.
    """

    name: str
    rule: str
    fails: str
    make: Callable[[random.Random], PrintedLog]
    words: str = ""
    control: Callable[[random.Random], PrintedLog] | None = None
    status: str = "FAIL"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    control_status: tuple[str, ...] = ("PASS", "INFO")


def begun(draw: random.Random) -> PrintedLog:
    """A healthy run so far."""
    log = healthy(draw.randrange(1, 4))
    log.ray, log.colours = draw.random() < 0.7, draw.random() < 0.5
    log.say(f"Start rollout {draw.randrange(4, 9)}/200")
    log.noise(draw.randrange(3, 30), seed=draw.randrange(999))
    log.wait(draw.uniform(10, 400))
    return log


def engine(log: PrintedLog, rank: int, words: str):
    """A line of SGLang's own logger."""
    log.raw(f"[{log.stamp()} TP{rank}] {words}")


def illegal_access(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    rank = draw.randrange(8)
    where = draw.choice(["next_token_ids.tolist()", 'batch.to("cpu")', "x.item()"])
    engine(log, rank, "Scheduler hit an exception: Traceback (most recent call last):")
    log.raw(f'  File "scheduler.py", line {draw.randrange(99, 999)}, in process_batch')
    log.raw(f"    next_token_ids = {where}")
    log.raw(
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    )
    log.wait(draw.uniform(0.5, 3))
    engine(log, 0, "SIGQUIT received. It usually means one child failed.")
    fallout(log, draw)
    return log


def fallout(log: PrintedLog, draw: random.Random):
    for rank in range(1, draw.randrange(2, 5)):
        log.wait(draw.uniform(0.5, 3))
        log.say(
            f"[Rank {rank}] RuntimeError: gloo: Connection closed by peer [10.0.0.9]"
        )
    log.wait(draw.uniform(1, 5))
    log.say(
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing"
    )


def stop_strings(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("request: temperature=1.0, stop=['</answer>', '</tool_call>']")
    log.lines += illegal_access(draw).lines
    return log


def detokenizer_frozen(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.wait(30)
    beat = log.stamp()[11:]
    for _ in range(draw.randrange(2, 9)):
        log.wait(20)
        log.raw(
            f"[{log.stamp()}] Health check failed. Server couldn't get a response from"
            f" detokenizer for last 20 seconds. tic start time: {log.stamp()[11:]}."
            f" last_heartbeat time: {beat}"
        )
    return log


def detokenizer_slow(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    for _ in range(draw.randrange(2, 5)):
        log.wait(60)
        log.raw(
            f"[{log.stamp()}] Server couldn't get a response from detokenizer for last"
            f" 20 seconds. last_heartbeat time: {log.stamp()[11:]}"
        )
    return log


def watchdog_all(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.wait(300)
    for rank in range(8):
        engine(log, rank, "Watchdog timeout (self.watchdog_timeout=300)")
    log.wait(5)
    engine(
        log,
        0,
        "Received sigquit from a child process. It usually means the child failed.",
    )
    return log


def watchdog_one(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    engine(log, draw.randrange(8), "Watchdog timeout (self.watchdog_timeout=300)")
    return log


def resume_overlaps(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("POST /release_memory_occupation HTTP/1.1 200 OK")
    log.wait(1)
    log.say("POST /resume_memory_occupation HTTP/1.1")
    log.say(
        "[torch_memory_saver] CUresult error: out of memory cuMemCreate size=2097152"
    )
    log.wait(draw.uniform(2, 6))
    log.say("[Rank 0] Memory-Usage after offload model: {'free_GB': 71.0}")
    return log


def resume_too_large(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("[Rank 0] Memory-Usage after offload model: {'free_GB': 71.0}")
    log.wait(9)
    log.say("POST /resume_memory_occupation HTTP/1.1")
    log.say("[torch_memory_saver] cuMemCreate failed: CUDA_ERROR_OUT_OF_MEMORY")
    return log


def out_of_memory(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say(
        f"[Rank {draw.randrange(8)}] torch.OutOfMemoryError: CUDA out of memory. Tried"
        f" to allocate {draw.randrange(1, 30)}.00 GiB",
        who="MegatronTrainRayActor",
    )
    fallout(log, draw)
    return log


def nccl(log: PrintedLog, rank: int, sequence: int, elements: int):
    log.raw(
        f"[rank{rank}]:[E1023 10:00:00 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog"
        f" caught collective operation timeout: WorkNCCL(SeqNum={sequence},"
        f" OpType=ALLREDUCE, NumelIn={elements}, NumelOut={elements},"
        " Timeout(ms)=1200000) ran for 1200007 milliseconds before timing out."
    )


def missing_rank(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    missing, sequence = draw.randrange(7), draw.randrange(10, 99)
    for rank in range(8):
        if rank != missing:
            nccl(log, rank, sequence, draw.choice([1, 1, 415236096]))
    return log


def out_of_step(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    for rank in range(8):
        nccl(log, rank, 20 + rank, 1)
    return log


def peer_lost(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("[Rank 3] RuntimeError: gloo: Connection closed by peer [10.0.0.9]:3391")
    return log


def ray_untold(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say(
        "A worker died or was killed while executing a task. Worker exit type:"
        " SYSTEM_ERROR, connection error code 2. End of file."
    )
    return log


def ray_memory(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say(
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low"
        " on memory."
    )
    return log


def ray_after_cuda(draw: random.Random) -> PrintedLog:
    log = out_of_memory(draw)
    log.wait(1)
    log.say("Worker exit type: SYSTEM_ERROR, connection error code 2. End of file.")
    return log


def placement(draw: random.Random) -> PrintedLog:
    log = PrintedLog(ray=False)
    for _ in range(draw.randrange(3, 9)):
        log.say("The placement group cannot be scheduled right now: {'CPU': 2.0} * 1")
        log.wait(30)
    return log


def placement_once(draw: random.Random) -> PrintedLog:
    log = PrintedLog(ray=False)
    log.say("The placement group cannot be scheduled right now: {'CPU': 2.0} * 1")
    log.lines += begun(draw).lines
    return log


def disk(draw: random.Random, *, full: bool = True) -> PrintedLog:
    log = begun(draw)
    for number in range(500):
        free = 42_000_000_000 - number * (84_000_000 if full else 0)
        log.say(
            "file_system_monitor: /tmp/ray/session is over 95% full, available space:"
            f" {max(free, 0)}; capacity: 900000000000."
        )
    if full:
        log.say("OSError: [Errno 28] No space left on device: '/dumps/7.pt'")
    return log


def push_layout(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    for _ in range(8):
        log.say("POST /update_weights_from_distributed HTTP/1.1 200 OK")
    log.raw("[DP6 TP6] Failed to update parameter online: start out of range")
    return log


def push_name(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say(
        "ValueError: Unknown parameter name: module.layers.3.self_attention"
        ".in_proj.weight"
    )
    return log


def resume_without_push(draw: random.Random) -> PrintedLog:
    log = healthy(1)
    log.say("POST /release_memory_occupation HTTP/1.1 200 OK")
    log.say("POST /resume_memory_occupation HTTP/1.1 200 OK")
    log.say("Start rollout 1/200")
    log.noise(draw.randrange(3, 9))
    log.say("POST /release_memory_occupation HTTP/1.1 200 OK")
    return log


def resume_with_push(draw: random.Random) -> PrintedLog:
    log = healthy(1)
    for number in range(1, draw.randrange(3, 6)):
        log.say("POST /release_memory_occupation HTTP/1.1 200 OK")
        log.say("POST /resume_memory_occupation HTTP/1.1 200 OK")
        log.say("POST /update_weights_from_tensor HTTP/1.1 200 OK")
        log.say("POST /resume_memory_occupation HTTP/1.1 200 OK")
        log.say("POST /flush_cache HTTP/1.1 200 OK")
        log.say(f"Start rollout {number}/200")
        log.noise(3)
    return log


def resume_skipped(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("POST /release_memory_occupation HTTP/1.1 200 OK")
    log.say("resume_memory(kv_cache): already resumed, skipped")
    return log


def killed_early(draw: random.Random) -> PrintedLog:
    log = PrintedLog()
    log.say("Capture cuda graph begin. This can take up to several minutes.")
    log.wait(draw.uniform(5, 30))
    log.say("GET /health_generate HTTP/1.1 503 Service Unavailable")
    log.say("Health monitor: killing engine 0")
    return log


def one_503(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("GET /health_generate HTTP/1.1 503 Service Unavailable")
    log.noise(9)
    return log


def child_died(draw: random.Random, code: int = -9) -> PrintedLog:
    log = begun(draw)
    engine(log, 0, f"Subprocess scheduler_0 (pid=6153) crashed with exit code {code}.")
    engine(log, 0, "SIGQUIT received. It usually means one child failed.")
    return log


def shut_down(draw: random.Random) -> PrintedLog:
    log = child_died(draw, code=-15)
    log.say("A worker exited. Worker exit type: INTENDED_SYSTEM_EXIT")
    return log


def says(words: str) -> Callable[[random.Random], PrintedLog]:
    def make(draw: random.Random) -> PrintedLog:
        log = begun(draw)
        log.say(words)
        return log

    return make


def resumed(first: int) -> Callable[[random.Random], PrintedLog]:
    def make(draw: random.Random) -> PrintedLog:
        log = PrintedLog()
        iteration = draw.randrange(20, 90)
        log.say(f" successfully loaded checkpoint from /ckpt at iteration {iteration}")
        for number in range(first, first + 3):
            log.rollout(number, {"rollout/raw_reward": 0.5})
        return log

    return make


def well(draw: random.Random) -> PrintedLog:
    log = begun(draw)
    log.say("Watch the dog: error rate 0.0, no exception so far")
    log.say("Killed 0 stragglers; memory is not low")
    return log


CASES = (
    LogCase("D-02", "engine_illegal_access", "illegal memory access", illegal_access,
            "memory pressure", peer_lost),
    LogCase("guide-IMA", "engine_illegal_access", "illegal memory access", stop_strings,
            "stop_token_ids", well),
    LogCase("D-01", "engine_detokenizer", "frozen, not slow", detokenizer_frozen,
            "", one_503),
    LogCase("D-01-slow", "engine_detokenizer", "moves on", detokenizer_slow, "",
            one_503, "WARN"),
    LogCase("D-20", "engine_watchdog", "8 ranks", watchdog_all, "prefill", well),
    LogCase("D-20-one", "engine_watchdog", "alone", watchdog_one,
            "stuck by itself", well),
    LogCase("D-03", "memory_on_resume", "overlaps", resume_overlaps, "order, not size",
            well),
    LogCase("D-03-size", "memory_on_resume", "took its memory back", resume_too_large,
            "wants more", well),
    LogCase("OOM", "cuda_memory", "out of memory", out_of_memory, "micro-batch", well),
    LogCase("D-13", "collective_stuck", "reports nothing", missing_rank, "rank", well),
    LogCase("D-13-desync", "collective_stuck", "out of step", out_of_step, "different",
            well),
    LogCase("D-02-network", "collective_stuck", "peer lost", peer_lost, "network",
            illegal_access),
    LogCase("D-10", "ray_deaths", "without a reason", ray_untold, "container",
            ray_after_cuda),
    LogCase("D-10-told", "ray_deaths", "ran out of memory", ray_memory, "host memory",
            illegal_access),
    LogCase("D-11", "placement_pending", "'CPU': 2.0", placement, "larger than any one",
            placement_once, control_status=("PASS", "WARN")),
    LogCase("E-16", "disk_full", "the disk was full", disk, "", well),
    LogCase("E-16-low", "disk_full", "500 times", lambda draw: disk(draw, full=False),
            "", well, "WARN"),
    LogCase("D-05", "weight_push_failed", "8 accepted buckets", push_layout,
            "another layout", resume_with_push),
    LogCase("D-07", "weight_push_failed", "in_proj.weight", push_name, "raw tables",
            resume_with_push, arguments={"megatron_to_hf_mode": "bridge"}),
    LogCase("A-08", "resume_order", "without a weight update", resume_without_push,
            "empty", resume_with_push),
    LogCase("D-18", "resume_order", "skipped", resume_skipped, "never mapped",
            resume_with_push),
    LogCase("D-09", "engine_killed_early", "warming up", killed_early, "compiled",
            one_503, arguments={"rollout_health_check_first_wait": 0}),
    LogCase("SIGKILL", "engine_killed", "SIGQUIT", child_died, "SIGKILL", shut_down),
    LogCase("A-15", "context_exceeded", "exceeds", says(
        "ValueError: Requested token count exceeds the model's maximum context length"
        " of 40960 tokens. You requested a total of 43778 tokens"),
            "full budget", well),
    LogCase("C-09", "scorer_thread", "main thread",
            says("ValueError: signal only works in main thread of the interpreter"),
            "timeout", well),
    LogCase("D-19", "cuda_tensor_leaked", "without CUDA",
            says("RaySystemError: System error: Attempting to deserialize object on a"
                 " CUDA device but torch.cuda.is_available() is False"), "CUDA tensor",
            well),
    LogCase("E-11", "trainer_groups_missing", "do not exist",
            says("AssertionError: data parallel group is not initialized"),
            "trainer is off", well, arguments={"debug_rollout_only": True}),
    LogCase("E-10", "replay_gpus_unset", "unset number",
            says("TypeError: unsupported operand type(s) for //: 'int' and 'NoneType'"),
            "replay", well),
    LogCase("B-31", "model_arguments_differ", "rotary base",
            says("AssertionError: rope_theta in hf config 1000000 is not equal to"
                 " rotary_base 10000"), "rope_parameters", well),
    LogCase("C-02", "overflow_asserted", "overflow",
            says("    assert update_successful, f'{grad_norm=}'"),
            "normal in fp16", well),
    LogCase("E-01", "dump_has_classes", "class",
            says("UnpicklingError: Weights only load failed. Unsupported global"),
            "object", well),
    LogCase("E-08", "dump_cut_short", "cut short",
            says("RuntimeError: PytorchStreamReader failed reading zip archive: failed"
                 " finding central directory"), "disk was full", well, "FAIL"),
    LogCase("E-14", "forge_fell_back", "dump 0",
            says("forge_load: data_1.pt missing, falling back to data_0.pt"),
            "template", well, "WARN"),
    LogCase("E-17", "resumed_from_zero", "count from 0", resumed(0), "start rollout",
            resumed(40), "WARN"),
    LogCase("NaN", "gradients_overflowed", "not finite",
            says("Inf found in gradients (step_id=0)"), "overflow", well, "WARN"),
    LogCase("D-16", "data_stalled", "do not come",
            says("still waiting for data system to catch up after 660s, possibly hang"),
            "never ends", well),
)  # fmt: skip
