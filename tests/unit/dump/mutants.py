"""A long-lived decoder that is fed damaged dumps; run as a program by the fuzz test.

    python mutants.py FOLDER COUNT

Says on standard output, one JSON object a line, what became of each.
"""

from __future__ import annotations

import io
import json
import random
import resource
import shutil
import signal
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from hostile_pickles import attempts, bombs, zipped

from relax.dump.decode.guard import install_guard
from relax.dump.decode.limits import apply_limits
from relax.dump.decode.messages import DecodeRequest
from relax.dump.decode.process import decode_here
from relax.errors import DumpError

MEMORY = 512 << 20
SECONDS = 5
HANGS = ("laughing key",)
"""Bombs of time: a process of their own is killed for them in another test."""


def repacked(content: bytes, change) -> bytes:
    """The archive with another pickle, its checksums right again."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as source,
        zipfile.ZipFile(packed, "w") as target,
    ):
        for name in source.namelist():
            data = source.read(name)
            changed = change(data) if name.endswith("data.pkl") else data
            target.writestr(name, changed)
    return packed.getvalue()


def flipped(content: bytes, draw: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 20))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def spliced(content: bytes, draw: random.Random, pieces: list[bytes]) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + draw.choice(pieces) + content[place:]


def shuffled(content: bytes, draw: random.Random) -> bytes:
    a, b = sorted(draw.randrange(len(content)) for _ in range(2))
    return content[:a] + content[b:] + content[a:b]


def mutants(folder: Path, count: int) -> Iterator[tuple[str, bytes]]:
    draw = random.Random(0)
    seeds = [(p.name, p.read_bytes()) for p in sorted((folder / "seeds").iterdir())]
    tries = {
        name: pickled for name, (pickled, _) in attempts(folder / "canary").items()
    }
    harmful = {**tries, **{n: b for n, b in bombs().items() if n not in HANGS}}
    for name, pickled in harmful.items():
        yield name, zipped(pickled)
    pieces = [pickled[2:-1] for pickled in harmful.values() if len(pickled) < 4000]
    ways = {
        "truncated": lambda c: c[: draw.randrange(len(c))],
        "flipped": lambda c: flipped(c, draw),
        "flipped pickle": lambda c: repacked(c, lambda d: flipped(d, draw)),
        "spliced": lambda c: repacked(c, lambda d: spliced(d, draw, pieces)),
        "shuffled": lambda c: repacked(c, lambda d: shuffled(d, draw)),
        "short pickle": lambda c: repacked(c, lambda d: d[: draw.randrange(len(d))]),
    }
    for number in range(count - len(harmful)):
        seed, content = seeds[number % len(seeds)]
        way = draw.choice(list(ways))
        yield f"{way} {seed}", ways[way](content)


def outcome(path: Path, into: Path) -> dict[str, object]:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    request = DecodeRequest(
        paths=(str(path),),
        into=str(into),
        reward_key=None,
        max_memory=MEMORY,
        time_limit=None,
    )
    signal.alarm(SECONDS)
    try:
        decoded = decode_here(request, lambda _: None)
    except DumpError as error:
        return {"error": error.code, "what": str(error)}
    except MemoryError:
        return {"error": "memory", "what": "memory"}
    finally:
        signal.alarm(0)
    return {"rows": decoded.num_samples, "notes": len(decoded.notes)}


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    apply_limits(max_memory=MEMORY, time_limit=None)
    install_guard()
    path = folder / "3_0.pt"
    for name, content in mutants(folder, count):
        path.write_bytes(content)
        say({"name": name, **outcome(path, folder / "out")})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say({"peak_mib": peak / 1024})


def say(document: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
