#!/usr/bin/env python3
"""linked.py MESON MODEL: fak built with backends linked in (-Dstatic_plugins), where no file is.

None is left out by the linker: each is listed, runs when it is named, and the fastest of class
reference is taken.  Builds fakrun in a temporary folder, a minute or two.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MESON, MODEL = sys.argv[1], os.path.abspath(sys.argv[2])
ROOT = pathlib.Path(__file__).resolve().parent.parent
LINKED = ["cpu-ref", "cpu", "template"]


class Linked(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.room = tempfile.TemporaryDirectory(prefix="fak-test-linked-")
        cls.addClassCleanup(cls.room.cleanup)
        cls.program = os.path.join(cls.room.name, "build", "fakrun")
        build = os.path.dirname(cls.program)
        for command in ([MESON, "setup", build, str(ROOT), "-Dtests=false", "-Dbackends=cpu-ref",
                         "-Dstatic_plugins=" + ",".join(LINKED[1:]), "-Doptimization=1", "-Ddebug=false",
                         "--prefix=" + os.path.join(cls.room.name, "nothing")],
                        [MESON, "compile", "-C", build, "fakrun"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert not done.returncode, done.stdout + done.stderr

    def fine(self, *args):
        env = {k: v for k, v in os.environ.items() if not k.startswith("FAK_")}
        env.update(HOME=self.room.name, XDG_CACHE_HOME=os.path.join(self.room.name, "cache"))
        done = subprocess.run([self.program, *args], env=env, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=300, check=False, cwd=self.room.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_all_are_there(self):
        listed = json.loads(self.fine("backends", "--json").stdout)["backends"]
        self.assertEqual([(b["name"], b["path"], b["state"]) for b in listed],
                         [(name, "(linked in)", "loaded") for name in LINKED])
        self.assertEqual([len(b["devices"]) for b in listed], [1] * len(LINKED))

    def test_each_runs(self):
        ids = {}
        for name in LINKED:
            said = self.fine("-m", MODEL, "-p", "Hello the", "-n", "8", "--json", "--backend", name)
            said = json.loads(said.stdout)
            self.assertEqual(said["backend"]["name"], name)
            ids[name] = said["ids"]
        self.assertEqual(ids["cpu"], ids["cpu-ref"])

    def test_the_fastest_is_taken(self):
        said = self.fine("-m", MODEL, "-p", "Hello", "-n", "2")
        self.assertRegex(said.stderr, r"backend cpu \(reference; .*; not cpu-ref: .*; not template: ")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
