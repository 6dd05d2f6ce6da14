#!/usr/bin/env python3
"""linear.py FAKRUN MODEL KB: twice the text takes at most 2.2 times the instructions to tokenize.

Texts of KB and of twice as many kibibytes: one letter, spaces, CJK, emoji, over and over.
Instructions are counted (valgrind's cachegrind), not timed; what an empty text takes is taken off
first.  MODEL may be - for the one that FAK_TEST_MODEL names.  Without valgrind, or that: exit 77.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

MOST = 2.2
UNITS = {"letter": "l", "capital": "A", "space": " ", "line end": "\n", "CJK": "\u65e5",
         "emoji": "\U0001f600", "digit": "7", "not UTF-8": b"\xff"}


def instructions(fakrun, model, path):
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
               fakrun, "tokenize", "-m", model, "-f", path, "--json"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return int(re.search(rb"I +refs: +([\d,]+)", done.stderr)[1].replace(b",", b""))


def main():
    fakrun, model, kib = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if model == "-":
        model = os.environ.get("FAK_TEST_MODEL")
    if not model or not shutil.which("valgrind"):
        print("skipped: " + ("there is no valgrind" if model else "FAK_TEST_MODEL names no model"))
        return 77
    worst = 0
    with tempfile.TemporaryDirectory(prefix="fak-test-linear-") as room:
        path = os.path.join(room, "text")

        def count(unit, size):
            with open(path, "wb") as file:
                file.write(unit * (size // len(unit)))
            return instructions(fakrun, model, path)

        nothing = count(b"-", 0)
        for name, unit in UNITS.items():
            unit = unit if isinstance(unit, bytes) else unit.encode()
            one, two = (count(unit, kib * 1024 * n) - nothing for n in (1, 2))
            print(f"{name:10} {kib} KiB: {one:>13,}  {2 * kib} KiB: {two:>13,}  {two / one:.3f}",
                  flush=True)
            worst = max(worst, two / one)
    print(f"worst ratio {worst:.3f}; {MOST} is allowed")
    return worst > MOST


if __name__ == "__main__":
    sys.exit(main())
