import time

import pytest


@pytest.fixture(autouse=True)
def fixed_time_zone(monkeypatch, tmp_path):
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TMUX", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
