"""Which log lines the log rules want: a name and an expression each.

The expressions are tried by RE2 on whole blocks and by `re` on the lines that it hits,
so they use only what both have; the first that fits names the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MARKS: Final[Mapping[str, str]] = {
    # The rollout engine.
    "illegal_access": r"illegal memory access",
    "sigquit": r"SIGQUIT received|[Rr]eceived (?:a )?sigquit",
    "child_exit": r"crashed with exit code -?\d+",
    "engine_watchdog": r"Watchdog timeout",
    "detokenizer": r"response from detokenizer for last",
    "health_failed": r"health(?:_generate)?\b.*\b503\b|[Hh]ealth check failed",
    "engine_dropped": r"[Kk]illing (?:the |rollout )*engine",
    "warming_up": r"Capture cuda graph begin|[Cc]apturing batches|JIT compil",
    "context_length": r"Requested token count exceeds|maximum context length of \d+",
    "stop_strings": r"""\bstop['"]?[=:] ?\[?['"]""",
    # Memory.
    "saver_memory": r"cuMemCreate|CUDA_ERROR_OUT_OF_MEMORY"
    r"|torch_memory_saver.*out of mem",
    "cuda_memory": r"CUDA out of memory|torch\.(?:cuda\.)?OutOfMemoryError",
    "release_memory": r"release_memory_occupation",
    "resume_memory": r"resume_memory_occupation",
    "resume_skipped": r"already resumed|resume.*skipp",
    "trainer_offloaded": r"Memory-Usage after offload model",
    # Weights.
    "update_failed": r"Failed to update (?:parameter|weights)|Unknown parameter name",
    "weights_pushed": r"update_weights_from_|Weights updated",
    "cache_flushed": r"flush_cache|Cache flushed",
    "loaded_iteration": r"loaded checkpoint from .* at iteration +\d+",
    # Ranks and processes.
    "collective_timeout": r"Watchdog caught collective operation timeout",
    "nccl_error": r"NCCL error|ncclSystemError|ncclRemoteError|ncclInternalError",
    "peer_closed": r"Connection (?:closed|reset) by (?:remote )?peer",
    "ray_memory": r"running low on memory|Task was killed due to"
    r"|memory usage threshold",
    "ray_node": r"NodeDiedError|missed too many heartbeats"
    r"|[Nn]ode .*(?:marked dead|died)",
    "ray_death": r"ActorDiedError|RayActorError|WorkerCrashedError"
    r"|Worker exit type: (?:SYSTEM_ERROR|USER_ERROR|NODE_OUT_OF_MEMORY)"
    r"|worker died|actor died unexpectedly|[Tt]he actor is dead",
    "killed": r"SIGKILL|exit ?code:? ?-9\b|signal 9\b",
    "placement": r"cannot be scheduled right now|pending placement group"
    r"|Insufficient resources|'?(?:CPU|GPU)'?: ?[\d.]+\} ?\* ?\d+|\d+\+ pending",
    "data_wait": r"still waiting for data system",
    # Disk and dumps.
    "disk_full": r"No space left on device",
    "disk_low": r"is over \d+(?:\.\d+)?% full",
    "dump_truncated": r"failed finding central directory|PytorchStreamWriter failed",
    "dump_class": r"Weights only load failed|Unsupported (?:global|class)",
    "forge_fallback": r"forge_load: .* missing, falling back",
    # Errors with one known meaning.
    "signal_thread": r"signal only works in main thread",
    "cuda_metric": r"deserialize (?:an )?object on a CUDA device",
    "trainer_groups": r"[Dd]ata parallel group is not initialized",
    "no_rollout_gpus": r"for //: '(?:int|NoneType)' and '(?:NoneType|int)'",
    "rotary_base": r"(?:rope_theta|rotary_base).*(?:hf config|not equal|!=|mismatch)",
    "overflow_assert": r"[Aa]ssert.*update_success",
    "gradient_inf": r"Inf found in gradients|found (?:NaN|Inf) in",
    "no_signal": r"num_samples_or_tokens == 0",
    # Anything else that ends a process.
    "scheduler": r"Scheduler hit an exception",
    "error": r"(?:Error|Exception)\b[^=]{0,3}: |Traceback \(most recent call last\)",
}
"""By name; what is more telling comes first."""

FAILURES: Final = (
    "illegal_access",
    "detokenizer",
    "engine_watchdog",
    "sigquit",
    "saver_memory",
    "cuda_memory",
    "update_failed",
    "collective_timeout",
    "nccl_error",
    "peer_closed",
    "ray_memory",
    "ray_node",
    "ray_death",
    "killed",
    "disk_full",
    "dump_truncated",
    "engine_dropped",
)
"""Marks of lines that say that something ended or got stuck."""
