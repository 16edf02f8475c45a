"""A process that answers for its stacks while some threads run Python all the time.

python busy_process.py FOLDER THREADS
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from relax.observe.stacks import answer_with_stacks


def deep(levels: int) -> int:
    """Frames that come and go."""
    return 0 if levels == 0 else 1 + deep(levels - 1)


def churn() -> None:
    """Never rests."""
    while True:
        deep(200)
        sum(number for number in (2 * other for other in range(50)))


answer_with_stacks(Path(sys.argv[1]), "busy")
for _ in range(int(sys.argv[2])):
    threading.Thread(target=churn, name="churning", daemon=True).start()
sys.stdout.write("up\n")
sys.stdout.flush()
threading.Event().wait()
