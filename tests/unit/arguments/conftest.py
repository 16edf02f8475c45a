from pathlib import Path

import pytest
from refusal_table import Row, command_line


@pytest.fixture
def words(tmp_path: Path):
    """Words of a small run that stands, plus others; TMP is the test's folder."""

    def make(given: str = "", *, without: tuple[str, ...] = ()) -> list[str]:
        return command_line(Row(given, (), without), tmp_path)

    return make
