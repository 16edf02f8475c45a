"""What a server's log says about its end."""

from __future__ import annotations

import pytest

from relax.backends.sglang.command import ServerSettings
from relax.backends.sglang.server import ServerProcess

ARGUMENTS = "server_args=ServerArgs(" + "a_long_name_" * 20_000


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  raise torch.OutOfMemoryError: no room", "OutOfMemoryError: no room"),
        ("[12:00] SIGQUIT received. signum=None", "[12:00] SIGQUIT received. signum=N"),
        (
            "Health check failed: no response from detokenizer",
            "Health check failed: no",
        ),
        ("all is well", "its log does not say why"),
        ("an Error without words", "its log does not say why"),
    ],
)
def test_the_first_telling_line_is_named(tmp_path, line, words):
    """Behind a line of arguments that is long enough to be a trap for an expression."""
    log = tmp_path / "sglang.log"
    consequence = "" if "why" in words else "ValueError: a consequence\n"
    log.write_text(f"{ARGUMENTS}\n{line}\n{consequence}")
    settings = ServerSettings(
        python=tmp_path / "python",
        model=tmp_path,
        context_length=8,
        arguments={},
        has_gpu=False,
        threads=1,
        seed=0,
    )
    assert ServerProcess(settings, log=log).last_words().startswith(words)
