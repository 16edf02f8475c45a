"""Writing dumps without torch: files that appear whole, and are never overwritten.

facts = RunFacts(run_id=…, attempt=…, arguments=arguments.to_json(), …)
directory = DumpDirectory(places=DumpPlaces.under(folder), facts=facts)
dumped = directory.dump(StepToDump(rollout_id=37, weights=…, samples=…, ranks=…))
"""

from __future__ import annotations

from relax.dump.write.model_files import ModelFiles
from relax.dump.write.retention import PrunedDump, Retention
from relax.dump.write.rollout import estimate_rollout_bytes, write_rollout_dump
from relax.dump.write.step import (
    DumpDirectory,
    DumpedStep,
    RunFacts,
    StepToDump,
    dump_step,
)
from relax.dump.write.train import write_train_dump
from relax.dump.write.written import WrittenFile

__all__ = [
    "DumpDirectory",
    "DumpedStep",
    "ModelFiles",
    "PrunedDump",
    "Retention",
    "RunFacts",
    "StepToDump",
    "WrittenFile",
    "dump_step",
    "estimate_rollout_bytes",
    "write_rollout_dump",
    "write_train_dump",
]
