#!/usr/bin/env python3
"""test_mutants - the lists of test/mutants*.py fit the tree: none is stale, and none of the barriers and
masks of plugins/cuda is without one.  (scripts/mutate plants them.)"""
import collections
import pathlib
import re
import unittest

from mutants import MUTANTS
from mutants_cuda import KERNELS, races_in

ROOT = pathlib.Path(__file__).resolve().parent.parent
SYNCHRONISES = re.compile(r"\b__\w*(?:sync|shfl|ballot|barrier|fence|vote|match|reduce)\w*")


def without_comments(text):
    """Comments become spaces: places stay."""
    return re.sub(r"/\*.*?\*/", lambda m: " " * len(m[0]), text, flags=re.S)


def unseen(text):
    """Whatever makes threads wait for each other and has no mutant."""
    places = races_in(text)[1]
    return [m[0] for m in SYNCHRONISES.finditer(without_comments(text)) if m.start() not in places]


class Mutants(unittest.TestCase):
    def test_none_is_stale(self):
        texts = {}
        for m in MUTANTS:
            text = texts.setdefault(m["file"], (ROOT / m["file"]).read_text())
            self.assertEqual(text.count(m["old"]), 1, m["name"])
            self.assertNotEqual(m["old"], m["new"], m["name"])

    def test_names_differ(self):
        names = collections.Counter(m["name"] for m in MUTANTS)
        self.assertEqual([n for n, count in names.items() if count > 1], [])

    def test_every_barrier_has_one(self):
        files = sorted((ROOT / KERNELS).iterdir())
        found = sum(len(races_in(path.read_text())[1]) for path in files)
        self.assertGreater(found, 25)
        for path in files:
            self.assertEqual(unseen(path.read_text()), [], path.name)

    def test_others_are_seen(self):
        text = "\nf()\n{\n    __syncthreads();\n    v = __shfl_xor_sync(FULL, v, 1);\n    %s\n}\n"
        self.assertEqual(unseen(text % "/* __syncthreads() */"), [])
        for more in ("__syncwarp();", "v = __shfl_sync(mask, v, 0);", "n = __ballot_sync(FULL, v);",
                     "__syncthreads_or(v);", "__threadfence();"):
            self.assertEqual(len(unseen(text % more)), 1, more)


if __name__ == "__main__":
    unittest.main(verbosity=2)
