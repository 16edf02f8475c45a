"""The decoder process: ``python -m relax.entrypoints.decode``, one request on stdin.

Started by `relax.dump.decode.client`; nobody types this.
"""

from __future__ import annotations

import sys

from relax.dump.decode.process import serve


def main() -> int:
    """Answers the request on standard input."""
    serve(sys.stdin, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
