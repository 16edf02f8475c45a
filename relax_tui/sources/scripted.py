"""A source that posts what a test tells it to."""

from __future__ import annotations

from pathlib import Path

from relax_tui.sources.base import Post, RunSnapshot, SampleTokens


class ScriptedSource:
    """Posts given snapshots; remembers which rollouts were asked for.

    Args:
        snapshot: Posted as soon as the console listens; None for nothing yet.
        run_dir: The folder it pretends to follow.
    """

    def __init__(
        self, snapshot: RunSnapshot | None = None, *, run_dir: Path = Path("scripted")
    ) -> None:
        self.run_dir = run_dir
        self.asked: list[tuple[int, int] | None] = []
        self.started = False
        self.stopped = False
        self._snapshot = snapshot
        self._post: Post | None = None

    def start(self, post: Post) -> None:
        """Posts the first snapshot."""
        self.started = True
        self._post = post
        if self._snapshot is not None:
            post(self._snapshot)

    def stop(self) -> None:
        """Notes that the console let go."""
        self.stopped = True

    def view(self, rollout: tuple[int, int] | None) -> None:
        """Notes the wish."""
        self.asked.append(rollout)

    def post(self, snapshot: RunSnapshot) -> None:
        """Posts one more snapshot; before the start it becomes the first."""
        self._snapshot = snapshot
        if self._post is not None:
            self._post(snapshot)


class ScriptedTokens:
    """Tokens given in advance, by row."""

    def __init__(self, samples: dict[int, SampleTokens]) -> None:
        self._samples = samples

    def sample(self, row: int) -> SampleTokens | None:
        """The tokens of a row, if the script has them."""
        return self._samples.get(row)
