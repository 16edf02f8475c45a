"""The decoder process: one request on standard input, messages on standard output."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from relax.dump.decode.guard import install_guard
from relax.dump.decode.limits import apply_limits
from relax.dump.decode.messages import (
    RESULT_NAME,
    Decoded,
    DecodeRequest,
    Progress,
    error_to_json,
)
from relax.dump.manifest import Manifest, read_manifest
from relax.dump.paths import manifest_path
from relax.dump.readers.step import StepReader
from relax.errors import DumpError, DumpRefused, RelaxError
from relax.records.atomic import write_atomically

PROGRESS_SECONDS: Final = 0.1
MIB: Final = 1 << 20


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answers one request.

    Args:
        requests: Gives a line with a `DecodeRequest`.
        answers: Takes lines with ``progress``, and at the end ``result`` or ``error``.
    """

    def say(kind: str, content: Mapping[str, Any]) -> None:
        answers.write(json.dumps({kind: content}) + "\n")
        answers.flush()

    request = DecodeRequest.from_json(json.loads(requests.readline()))
    apply_limits(max_memory=request.max_memory, time_limit=request.time_limit)
    install_guard()
    try:
        decoded = decode_here(request, lambda p: say("progress", vars(p)))
    except MemoryError:
        # The dump's objects are gone with the frames that held them.
        say("error", error_to_json(_too_large(request)))
    except RelaxError as error:
        say("error", error_to_json(error))
    else:
        say("result", decoded.to_json())


def decode_here(
    request: DecodeRequest, on_progress: Callable[[Progress], None]
) -> Decoded:
    """Decodes in this process, without its limits.

    Raises:
        DumpError: The files cannot be decoded.
    """
    started = time.monotonic()
    paths, into = tuple(map(Path, request.paths)), Path(request.into)
    meter = _Meter(paths, on_progress)
    try:
        step = StepReader(
            paths,
            into=into,
            reward_key=request.reward_key,
            manifest=_manifest_of(paths),
            progress=meter,
        ).read()
    except OSError as error:
        raise DumpError(
            f"decoding failed: {error.strerror or error}",
            where=str(error.filename or into),
        ) from error
    decoded = Decoded(
        folder=into,
        kind=step.kind,
        source_format=step.source,
        rollout_id=step.rollout_id,
        num_samples=step.num_samples,
        stages=step.stages,
        coverage=step.coverage,
        notes=step.notes,
        files=paths,
        seconds=round(time.monotonic() - started, 3),
    )
    document = json.dumps(decoded.to_json(), indent=1).encode()
    write_atomically(into / RESULT_NAME, document)
    meter.finish(step.num_samples)
    return decoded


class _Meter:
    """Passes progress on, at most a few times a second, and once at the end."""

    def __init__(
        self, paths: tuple[Path, ...], on_progress: Callable[[Progress], None]
    ) -> None:
        self._total = sum(path.stat().st_size for path in paths if path.exists())
        self._on_progress = on_progress
        self._next = time.monotonic() + PROGRESS_SECONDS

    def __call__(self, done: int, samples: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_SECONDS
            self._tell(min(done, self._total), samples)

    def finish(self, samples: int) -> None:
        self._tell(self._total, samples)

    def _tell(self, done: int, samples: int) -> None:
        self._on_progress(Progress(done=done, total=self._total, samples=samples))


def _manifest_of(paths: tuple[Path, ...]) -> Manifest | None:
    """The manifest beside the files, if it names the first of them at its size."""
    for path in paths:
        rollout = path.with_name(f"{path.stem.partition('_')[0]}{path.suffix}")
        beside = path.parent.with_name("rollout_data") / rollout.name
        for candidate in (path, rollout, beside):
            try:
                manifest = read_manifest(manifest_path(candidate))
            except DumpError:
                continue
            sizes = {Path(file.path).name: file.bytes for file in manifest.files}
            if sizes.get(path.name) == path.stat().st_size:
                return manifest
    return None


def _too_large(request: DecodeRequest) -> DumpRefused:
    return DumpRefused(
        f"needs more memory than the limit of {request.max_memory // MIB} MiB",
        where=request.paths[0],
        hint="raise the limit (--decode-max-memory) if the file is to be trusted",
    )
