#!/usr/bin/env python3
"""wrong.py FAKRUN WRONG_DIR MODEL: every wrong backend of test/mock/wrong.h, as a user meets them.

All in a folder at once: fakrun still answers on its own backend.  Each named: it says why, and the
exit code is not 0.  Those of stage FINE, OPCHECK and UNFIT load.  The table says where each is caught.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FAKRUN, WRONG, MODEL = (os.path.abspath(a) for a in sys.argv[1:4])
HERE = pathlib.Path(__file__).resolve().parent
ROOM = tempfile.mkdtemp(prefix="fak-test-wrong-")
SECONDS = 5  # that a plugin may take; those that hang take all of it
RUN = ["-m", MODEL, "-p", "Hello", "-n", "4"]


def table():
    """name: (stage, part of the sentence) of each row."""
    text = re.sub(r"\\\n\s*", "", (HERE / "mock/wrong.h").read_text())
    rows = re.findall(r'WRONG\(\w+, "([^"]+)", STAGE_(\w+), [01],\s*"([^"]*)",', text)
    return {name: (stage, part) for name, stage, part in rows}


ROWS = table()
HANGS = {name for name in ROWS if name.endswith("-hang") or name == "open-slow"}


def run(*args, **env):
    """fakrun with nothing of ours in the environment but env."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FAK_")}
    clean["ASAN_OPTIONS"] = "handle_segv=0:handle_sigill=0"  # a crash is to be a crash
    clean.update(HOME=ROOM, XDG_CACHE_HOME=os.path.join(ROOM, "cache"), **env)
    return subprocess.run([FAKRUN, *args], env=clean, stdin=subprocess.DEVNULL, check=False,
                          capture_output=True, timeout=900)


class Wrong(unittest.TestCase):
    maxDiff = None

    def test_all_are_built(self):
        files = {p.name[len("fak-backend-"):-len(".so")] for p in pathlib.Path(WRONG).glob("*.so")
                 if p.name.startswith("fak-backend-")}
        self.assertEqual(files - set(ROWS), set())
        self.assertEqual(set(ROWS) - files, set())
        self.assertGreater(len(ROWS), 80)

    def test_all_at_once(self):
        """On its own backend, exit 0, nothing but the text on standard output."""
        alone = run(*RUN, "-q")
        self.assertEqual(alone.returncode, 0, alone.stderr)
        for _ in range(2):  # the second time with remembered verdicts
            said = run(*RUN, "--probe-seconds", str(SECONDS), FAK_PLUGIN_PATH=WRONG)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertEqual(said.stdout, alone.stdout)
            self.assertIn(b"backend cpu-ref (reference;", said.stderr)
            self.assertIn(b"; not f32-only: it lacks F32 or Q8 activations", said.stderr)

    def test_each_is_listed_with_its_reason(self):
        said = run("backends", "-v", "--json", "--probe-seconds", str(SECONDS), FAK_PLUGIN_PATH=WRONG)
        self.assertEqual(said.returncode, 0, said.stderr)
        listed = {b["name"]: b for b in json.loads(said.stdout)["backends"]}
        self.assertEqual(listed["minor-0"]["devices"][0]["same_as"], "cpu-ref")  # equal ids
        self.assertNotIn("same_as", listed["cpu-ref"]["devices"][0])
        for name, (stage, part) in ROWS.items():
            with self.subTest(name):
                got = listed[name]
                why = got.get("why", "") + "".join(d.get("error", "") for d in got.get("devices", []))
                if stage in ("NOTE", "LIBRARY", "HANDSHAKE", "GOLDEN"):
                    self.assertEqual(got["state"], "refused", got)
                if stage in ("NOTE", "LIBRARY", "HANDSHAKE", "OPEN", "GOLDEN"):
                    self.assertTrue(why, got)
                    self.assertIn(part.lower(), why.lower())
                if stage == "FINE":
                    self.assertEqual(got["state"], "loaded", got)

    def assert_json(self, name, *args):
        """Whatever a backend says of itself: JSON can be read."""
        said = run(*args, "--json", "--backend", name, FAK_PLUGIN_PATH=WRONG)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(json.loads(said.stdout)["backend"]["name"], name)

    def test_each_named(self):
        """A named backend never falls back: exit not 0 and the reason, or an answer of its own."""
        for name, (stage, part) in ROWS.items():
            if name in HANGS or stage in ("OPCHECK", "UNFIT"):
                continue
            with self.subTest(name):
                said = run(*RUN, "--backend", name, "--probe-seconds", str(SECONDS),
                           FAK_PLUGIN_PATH=WRONG)
                error = said.stderr.decode(errors="replace")
                self.assertGreaterEqual(said.returncode, 0, error)  # no signal
                if stage == "FINE" and name != "fault-good":  # that one is not made to run
                    self.assertEqual(said.returncode, 0, error)
                    self.assertIn(f"backend {name} (", error)
                    self.assert_json(name, *RUN)
                    self.assert_json(name, "bisect", "-m", MODEL, "-n", "1")
                elif stage not in ("FINE", "RUN"):
                    self.assertIn(said.returncode, (1, 2), error)
                    self.assertEqual(said.stdout.strip(), b"")
                    self.assertIn(part.lower(), error.splitlines()[-1].lower())
                elif stage == "RUN":
                    self.assertNotEqual(said.returncode, 0, error)
                    self.assertTrue(error.splitlines()[-1].startswith("fakrun: "), error)


def main():
    try:
        unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
    finally:
        shutil.rmtree(ROOM)


if __name__ == "__main__":
    main()
