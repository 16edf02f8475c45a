"""Real processes for tests of parallel layouts.

`run_ranks` starts n of them, gives each its rank and a file to meet at, and hands back
what each returned. The first failing rank's traceback is the error; whatever else still
runs is ended by its own handle.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

TIMEOUT_SECONDS = 120


class RankFailed(AssertionError):
    """A rank raised; carries its traceback."""


def run_ranks(
    function: Callable[..., Any], *, world_size: int, folder: Path, **arguments: Any
) -> list[Any]:
    """Runs ``function(rank=…, world_size=…, folder=…, **arguments)`` in n processes.

    Args:
        function: At module level, so that a fresh process can import it.
        world_size: Number of processes.
        folder: For meeting files and results.
        **arguments: Picklable.

    Returns:
        One return value a rank.

    Raises:
        RankFailed: A rank raised, died or did not answer in time.
    """
    context = mp.get_context("spawn")
    processes, readers = [], {}
    for rank in range(world_size):
        reader, writer = context.Pipe(duplex=False)
        keywords = {"rank": rank, "world_size": world_size, "folder": folder}
        process = context.Process(
            target=_rank_main, args=(function, keywords | arguments, writer)
        )
        process.start()
        writer.close()
        processes.append(process)
        readers[reader] = rank
    try:
        return _collect(readers, world_size)
    finally:
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()


def _rank_main(
    function: Callable[..., Any], keywords: dict[str, Any], writer: Connection
) -> None:
    torch.set_num_threads(1)
    try:
        writer.send((True, function(**keywords)))
    except BaseException:
        writer.send((False, traceback.format_exc()))
        raise
    finally:
        writer.close()


def _collect(readers: dict[Connection, int], world_size: int) -> list[Any]:
    results: dict[int, Any] = {}
    waiting = dict(readers)
    while waiting:
        ready = wait(list(waiting), timeout=TIMEOUT_SECONDS)
        if not ready:
            raise RankFailed(f"ranks {sorted(waiting.values())} did not answer")
        for reader in ready:
            rank = waiting.pop(reader)
            try:
                succeeded, value = reader.recv()
            except EOFError as error:
                raise RankFailed(f"rank {rank} died without a word") from error
            if not succeeded:
                raise RankFailed(f"rank {rank}:\n{value}")
            results[rank] = value
    return [results[rank] for rank in range(world_size)]
