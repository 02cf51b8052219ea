"""Checks tests/data/xxh64.txt against the reference XXH64 (PyPI package `xxhash`).

    python3 tests/hash_vectors.py            compares, exits 1 at the first difference
    python3 tests/hash_vectors.py --write    writes the file anew

The names are made here, so a name missing from the file is a difference as well.
"""

import pathlib
import sys

import xxhash

FILE = pathlib.Path(__file__).parent / "data" / "xxh64.txt"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LEGAL = LETTERS + LETTERS.lower() + "0123456789-+/;.$_()"
LONGEST = 200


def names():
    yield from (char for char in LEGAL if char != "-")
    yield from ("default", "Default", "DEFAULT", "emails", "Emails", "a-", "a-b", "(x)", "$1.50;+_/")
    yield LEGAL
    cycle = LEGAL.replace("-", "") * 3
    yield from (cycle[:length] for length in (2, 3, 4, 5, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 199, LONGEST))
    yield "a" * LONGEST
    yield "A" * LONGEST
    yield "z" + "-" * (LONGEST - 1)
    yield from (f"tube-{number}" for number in range(16))


def text():
    lines = ["# XXH64, seed 0, of the name's bytes: hash, one space, name. Made by tests/hash_vectors.py."]
    lines += [f"{xxhash.xxh64(name.encode(), seed=0).hexdigest()} {name}" for name in names()]
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(text())
        return 0
    want, have = text().splitlines(), FILE.read_text().splitlines()
    for line, (wanted, found) in enumerate(zip(want, have), start=1):
        if wanted != found:
            print(f"{FILE.name}:{line}: have {found!r}, the reference says {wanted!r}")
            return 1
    if len(want) != len(have):
        print(f"{FILE.name}: have {len(have)} lines, the reference has {len(want)}")
        return 1
    print(f"{len(want) - 1} hash vectors agree with xxhash {xxhash.VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
