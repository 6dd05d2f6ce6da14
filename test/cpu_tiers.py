#!/usr/bin/env python3
"""cpu_tiers.py FAKRUN PLUGINS [quick]: plugins/cpu on every tier that this machine has, with 1 to 3 threads.

opcheck holds each to the reference, bit for bit; options are refused by name; the automatic choice
takes cpu before cpu-ref and says so.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

FAKRUN, PLUGINS = (os.path.abspath(a) for a in sys.argv[1:3])
QUICK = sys.argv[3:] == ["quick"]
SO = os.path.join(PLUGINS, "fak-backend-cpu.so")
ROOM = tempfile.mkdtemp(prefix="fak-test-cpu-")


def run(*args, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FAK_")}
    clean.update(HOME=ROOM, XDG_CACHE_HOME=os.path.join(ROOM, "cache"), **env)
    return subprocess.run([FAKRUN, *args], env=clean, stdin=subprocess.DEVNULL, check=False,
                          capture_output=True, timeout=600, text=True)


def tiers():
    """Those that the plugin knows, and of them those that open here."""
    said = run("backends", "-v", "--json", "--backend-path", SO, "--trust")
    backend = next(b for b in json.loads(said.stdout)["backends"] if b["name"] == "cpu")
    known = next(o["values"] for o in backend["options"] if o["name"] == "tier").split("|")[1:]
    return known, backend["devices"][0]["tier"]


class Tiers(unittest.TestCase):
    def check(self, tier, threads, rungs):
        """0 where this machine has no such tier."""
        said = run("opcheck", SO, "--trust", "-o", f"tier={tier}", "-o", f"threads={threads}",
                   "--rungs", rungs, "-q", "--json", "-")
        if "this machine has no such tier" in said.stdout + said.stderr:
            return 0
        evidence = json.loads(said.stdout)
        failed = [c for c in evidence["checks"] if c["verdict"] == "FAIL"]
        self.assertEqual(failed, [], (tier, threads))
        self.assertEqual(said.returncode, 0)
        self.assertEqual(evidence["device"]["class"], "reference")
        self.assertEqual(evidence["only"], [int(r) for r in rungs.split(",")])
        passed = [c for c in evidence["checks"] if c["verdict"] == "PASS" and c["rung"] in ("R1", "R2")]
        self.assertGreater(len(passed), 100)
        print(f"tier {tier}, {threads} threads, rungs {rungs}: {len(evidence['checks'])} checks",
              file=sys.stderr)
        return 1

    def test_the_best(self):
        """Every op and a tiny model; the bits are those of the reference, whatever the threads."""
        _, best = tiers()
        for threads in "2" if QUICK else "123":
            self.assertTrue(self.check(best, threads, "1" if QUICK else "1,3"))

    def test_the_others(self):
        if QUICK:  # they are of suite slow
            return
        known, best = tiers()
        self.assertIn(best, known)
        self.assertIn("scalar", known)
        there = sum(self.check(tier, 2, "1") for tier in known if tier != best)
        self.assertEqual(there, known.index(best))  # slowest first: all below the best are there

    def test_options(self):
        for option, part in (("tier=mmx", "no such tier"), ("threads=257", "0 to 256"),
                             ("threads=x", "0 to 256"), ("threads=", "0 to 256"), ("speed=9", "it has: tier, threads")):
            said = run("-m", "none.gguf", "-p", "x", "--backend-path", SO, "--trust", "-o", option)
            self.assertEqual(said.returncode, 2, option)
            self.assertRegex(said.stderr, re.escape(part))
            self.assertIn(option.split("=")[0], said.stderr)

    def test_chosen_before_the_reference(self):
        said = run("-m", "none.gguf", "-p", "x", "--trust", FAK_PLUGIN_PATH=PLUGINS)
        self.assertIn("none.gguf", said.stderr)  # the choice was made, the file is not there
        said = run("backends", "--trust", FAK_PLUGIN_PATH=PLUGINS)
        self.assertRegex(said.stdout, r"(?m)^cpu  .*loaded")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
