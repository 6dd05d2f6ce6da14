#!/usr/bin/env python3
"""table.py FOLDER MACHINE...: one table of what the machines computed, from FOLDER/MACHINE.txt.

A line there is a name and, last, a value.  Exit status 1 unless every machine has the same lines.
"""
import hashlib
import pathlib
import sys


def read(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.rsplit(" ", 1) for line in lines)


def cell(value):
    """A hash as it is; what is longer, as the hash of it."""
    if value is None:
        return "-"
    return value if len(value) <= 16 else hashlib.sha256(value.encode()).hexdigest()[:16]


def main():
    folder, machines = pathlib.Path(sys.argv[1]), sys.argv[2:]
    columns = [read(folder / f"{machine}.txt") for machine in machines]
    names = list(dict.fromkeys(name for column in columns for name in column))
    width = max(map(len, names), default=0)
    print(f"{'':{width}}", *(f"{machine:16}" for machine in machines))
    bad = 0 if names else 1
    for name in names:
        values = [column.get(name) for column in columns]
        differs = None in values or len(set(values)) > 1
        bad += differs
        print(f"{name:{width}}", *(f"{cell(v):16}" for v in values), *["DIFFER"] * differs)
    print(f"{len(names)} rows, " + (f"{bad} of them differ" if bad else "all equal"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
