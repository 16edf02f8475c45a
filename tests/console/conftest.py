import time

import pytest
from screens import snapshot_of


@pytest.fixture(autouse=True)
def fixed_time_zone(monkeypatch, tmp_path):
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TMUX", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory):
    """Snapshots by story, each made once: they are frozen."""
    made = {}

    def snapshot(story):
        if story not in made:
            folder = tmp_path_factory.mktemp(story) / "run"
            made[story] = snapshot_of(folder, story)
        return made[story]

    return snapshot
