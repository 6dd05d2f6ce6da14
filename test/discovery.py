#!/usr/bin/env python3
"""discovery.py FAKRUN PLUGIN MODEL WRONG_DIR: who may put a backend where, as root and as nobody.

What needs another user runs only as root (setpriv); without it those tests say that they are skipped.
"""
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

FAKRUN, PLUGIN, MODEL, WRONG = (os.path.abspath(a) for a in sys.argv[1:5])
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
ROOT = os.geteuid() == 0 and shutil.which("setpriv")


class Discovery(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.room = tempfile.mkdtemp(prefix="fak-test-discovery-")
        os.chmod(self.room, 0o755)
        self.folder = os.path.join(self.room, "backends")
        os.mkdir(self.folder, 0o755)
        self.file = os.path.join(self.folder, "fak-backend-other.so")
        shutil.copy(PLUGIN, self.file)  # its note says cpu-ref: enough to be refused by name
        self.program = os.path.join(self.room, "fakrun")
        shutil.copy(FAKRUN, self.program)  # where nobody may read it
        self.model = os.path.join(self.room, "model.gguf")
        shutil.copy(MODEL, self.model)

    def tearDown(self):
        shutil.rmtree(self.room)

    def run_it(self, *args, before=(), **env):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FAK_")}
        clean.update(HOME=self.room, **env)
        return subprocess.run([*before, self.program, *args], env=clean, capture_output=True,
                              check=False, timeout=120, cwd="/")

    def listed(self, *args, before=(), **env):
        said = self.run_it("backends", "--json", *args, before=before, **env)
        self.assertEqual(said.returncode, 0, said.stderr)
        return json.loads(said.stdout)

    def other(self, *args, **more):
        """(state, why) of the file in our folder; None when it is not looked at."""
        found = self.listed(*args, FAK_PLUGIN_PATH=self.folder, **more)["backends"]
        return next(((b["state"], b.get("why", "")) for b in found if b["name"] == "other"), None)

    def folder_why(self, **more):
        found = self.listed(FAK_PLUGIN_PATH=self.folder, **more)["folders"]
        return next(f["why"] for f in found if f["path"] == self.folder)

    def test_modes(self):
        self.assertEqual(self.other(), ("refused", "its note calls it cpu-ref; its file's name says other"))
        os.chmod(self.file, 0o666)
        self.assertEqual(self.other()[0], "refused")
        self.assertIn("everybody may write to it (mode 0666); --trust", self.other()[1])
        self.assertEqual(self.other("--trust")[1], "its note calls it cpu-ref; its file's name says other")
        os.chmod(self.file, 0o644)
        os.chmod(self.folder, 0o777)
        self.assertIsNone(self.other())
        self.assertIn("everybody may write to it (mode 0777)", self.folder_why())
        self.assertEqual(self.other("--trust")[1], "its note calls it cpu-ref; its file's name says other")
        said = self.run_it("-m", self.model, "-p", "x", "--backend", "other",
                           FAK_PLUGIN_PATH=self.folder)
        self.assertEqual(said.returncode, 2)
        self.assertIn(b"everybody may write to it", said.stderr)  # where was looked, and why not there

    def test_only_file(self):
        os.chmod(self.file, 0o666)
        args = ("-m", self.model, "-p", "x", "--backend-path", self.file)
        said = self.run_it(*args)
        self.assertEqual((said.returncode, said.stdout), (2, b""))
        self.assertIn(b"everybody may write to it", said.stderr)
        self.assertIn(b"its note calls it cpu-ref; its file's name says", self.run_it(*args, "--trust").stderr)

    @unittest.skipUnless(ROOT, "needs root and setpriv")
    def test_owners(self):
        os.chown(self.file, 1234, 1234)
        self.assertIn("it belongs to user 1234, neither to root nor to you", self.other()[1])
        os.chown(self.file, 65534, 65534)
        self.assertIn("it belongs to user 65534", self.other()[1])
        self.assertEqual(self.other(before=NOBODY)[1], "its note calls it cpu-ref; its file's name says other")  # to them it is
        os.chown(self.folder, 1234, 1234)
        self.assertIn("it belongs to user 1234", self.folder_why())

    @unittest.skipUnless(ROOT, "needs root and setpriv")
    def test_what_may_not_be_read(self):
        os.chmod(self.file, 0o600)
        self.assertEqual(self.other(before=NOBODY), ("refused", "Permission denied"))
        os.chmod(self.file, 0o644)
        os.chmod(self.folder, 0o700)
        self.assertIsNone(self.other(before=NOBODY))
        self.assertEqual(self.folder_why(before=NOBODY), "Permission denied")
        said = self.run_it("-m", self.model, "-p", "x", "-n", "2", before=NOBODY,
                           FAK_PLUGIN_PATH=self.folder)
        self.assertEqual(said.returncode, 0, said.stderr)

    @unittest.skipUnless(ROOT, "needs root and setpriv")
    def test_privileged_process(self):
        """Where the kernel says AT_SECURE, the environment names no backends."""
        os.chmod(self.program, 0o4755)
        if os.statvfs(self.room).f_flag & os.ST_NOSUID:
            self.skipTest("the file system knows no set-user-id")
        env = {"FAK_PLUGIN_PATH": self.folder, "FAK_BACKEND": "nothing-of-this-name"}
        found = self.listed(before=NOBODY, **env)
        self.assertNotIn(self.folder, [f["path"] for f in found["folders"]])
        self.assertNotIn("other", [b["name"] for b in found["backends"]])
        said = self.run_it("-m", self.model, "-p", "x", "-n", "2", before=NOBODY, **env)
        self.assertEqual(said.returncode, 0, said.stderr)
        os.chmod(self.program, stat.S_IMODE(0o755))
        self.assertEqual(self.run_it("-m", self.model, "-p", "x", before=NOBODY, **env).returncode, 2)

    def test_foreign_machines(self):
        with open(PLUGIN, "rb") as file:
            data = file.read()
        for at, value, why in ((18, 183, "it is for aarch64"), (18, 22, "it is for s390x"),
                               (4, 1, "it is an ELF file of 32 bits"), (5, 2, "other byte order")):
            patched = bytearray(data)
            patched[at] = value
            with open(self.file, "wb") as file:
                file.write(patched)
            state, said = self.other()
            self.assertEqual(state, "refused")
            self.assertIn(why, said)

    def test_verdicts_are_remembered(self):
        """Of files that claim class reference, the clean verdicts; of no others."""
        for name in ("minor-0", "wrong-bit"):  # both are tried; one is refused
            shutil.copy(os.path.join(WRONG, f"fak-backend-{name}.so"), self.folder)
        cache = os.path.join(self.room, "cache")
        kept = os.path.join(cache, "fak", "artefacts")
        for turn in range(3):
            said = self.run_it("-m", self.model, "-p", "x", "-n", "2", XDG_CACHE_HOME=cache,
                               FAK_PLUGIN_PATH=self.folder)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertIn(b"not minor-0: a device imitated in software", said.stderr)
            self.assertIn(b"not wrong-bit: it claims class reference, but op", said.stderr)
            self.assertEqual(len(os.listdir(kept)), 2 if turn == 2 else 1)
            if turn == 1:  # another file of the same name
                os.utime(os.path.join(self.folder, "fak-backend-minor-0.so"), (1, 1))
        with open(os.path.join(kept, os.listdir(kept)[0])) as file:
            self.assertIn("fak-backend-minor-0.so", file.read())
        for name in os.listdir(kept):
            os.unlink(os.path.join(kept, name))
        for name, code in (("wrong-bit", 2), ("minor-0", 0)):  # of one that is named, too
            said = self.run_it("-m", self.model, "-p", "x", "-n", "2", "--backend", name,
                               XDG_CACHE_HOME=cache, FAK_PLUGIN_PATH=self.folder)
            self.assertEqual(said.returncode, code, said.stderr)
            self.assertEqual(len(os.listdir(kept)), 0 if code else 1)
        said = self.run_it("-m", self.model, "-p", "x", "-n", "2", XDG_CACHE_HOME="/proc/nowhere",
                           FAK_PLUGIN_PATH=self.folder)  # as good as none
        self.assertEqual(said.returncode, 0, said.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
