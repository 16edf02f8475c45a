"""Weights into Ray's object store, on their way to the engines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ray
from torch import Tensor

from relax.backends.fingerprint import Fingerprint
from relax.backends.host_tensor import to_host
from relax.backends.training import ExportReport
from relax.faults.drills import Drill


def put_weights(
    exported: Iterable[dict[str, Tensor]], *, version: int, drill: Drill
) -> ExportReport:
    """Puts buckets of weights into the object store.

    Args:
        exported: Buckets of HF name → CPU tensor.
        version: Of the weights.
        drill: What is to go wrong on the way.
    """
    buckets: list[Any] = []
    fingerprint = Fingerprint()
    tensors = num_bytes = 0
    for tensors_of_bucket in exported:
        bucket = drill.converted(tensors_of_bucket)
        for name, tensor in bucket.items():
            fingerprint.add(name, tensor)
            num_bytes += tensor.nbytes
        tensors += len(bucket)
        sent = drill.sent(bucket)
        buckets.append(ray.put({name: to_host(t) for name, t in sent.items()}))
    drill.after_sending()
    return ExportReport(
        buckets=buckets,
        version=version,
        digests=fingerprint.digests(),
        fingerprint=fingerprint.hexdigest(),
        tensors=tensors,
        num_bytes=num_bytes,
    )
