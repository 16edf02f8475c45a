"""The border to Ray: its errors become ours, once.

A remote error of our own tree comes over as it is; anything else becomes a
`WorkerError` that names the worker and carries the text of the remote traceback.
"""

from __future__ import annotations

from typing import Any

import ray.exceptions

from relax.errors import RelaxError, WorkerError


async def answer(reference: Any, *, worker: str) -> Any:
    """Awaits what an actor's method gives.

    Args:
        reference: What ``actor.method.remote(…)`` returned.
        worker: The actor's name, e.g. ``train-0``.

    Raises:
        RelaxError: As the worker raised it.
        WorkerError: The worker raised something else, or died.
    """
    try:
        return await reference
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, RelaxError):
            raise cause from error
        text = str(error).strip()
        last = text.splitlines()[-1] if text else type(cause).__name__
        raise WorkerError(
            f"{worker} failed: {last}", where=worker, hint=f"its traceback:\n{text}"
        ) from error
    except ray.exceptions.ActorDiedError as error:
        raise WorkerError(
            f"{worker} died: {_first_line(error)}",
            where=worker,
            hint=f"see its log, logs/{worker}.log in the run folder",
        ) from error
    except ray.exceptions.RayError as error:
        raise WorkerError(
            f"{worker} does not answer: {_first_line(error)}", where=worker
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
