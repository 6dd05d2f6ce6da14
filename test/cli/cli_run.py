#!/usr/bin/env python3
"""Generating: models and prompts.  Usage: see common.py."""
import os
import shutil
import subprocess
import tempfile
import time

from common import (DTYPES, FAKRUN, K_DTYPES, ROOM, TIMEOUT, Case, contents, environment,
                    long_model, main, make, model, room, without_room)


class Models(Case):
    def commands(self, path):
        return (["-m", path, "-p", "x"], ["inspect", path], ["inspect", "--json", path],
                ["inspect", "--plan", path], ["tokenize", "-m", path, "-p", "x"])

    def test_files_that_are_no_model(self):
        head = contents(model("tiny-f32"))
        for path, *parts in (
            (room("missing.gguf"), "missing.gguf", "No such file"),
            (ROOM, "Is a directory"),
            (room("empty.gguf", b""), "empty.gguf"),
            (room("four.gguf", b"GGUF"), "four.gguf"),
            (room("text.gguf", b"this is no model, and long enough\n" * 9), "not a GGUF"),
            (room("cut.gguf", head[:1000]), "cut.gguf"),
            (room("cut2.gguf", head[:-1]), "cut2.gguf"),
            (room("version.gguf", head[:4] + b"\x63" + head[5:]), "version"),
            ("/dev/null", "null"),
        ):
            for args in self.commands(path):
                self.refused(1, args, *parts)

    def test_a_path_with_spaces_and_any_bytes(self):
        plain = self.generate("-p", "Hello", "-n", "8")
        for name in (b"a b  c.gguf", "m\u00f6d\u00e8l \u65e5.gguf".encode(), b"latin-1 \xe9\xff.gguf"):
            path = os.path.join(os.fsencode(ROOM), name)
            shutil.copy(model("tiny-f32"), path)
            said = self.fine("-m", path, "-p", "Hello", "-n", "8", "--json", "--ignore-eos").json
            self.assertEqual(said["ids"], plain["ids"])
            shown = name.decode("utf-8", "replace")
            listed = self.fine("inspect", path)
            self.assertIn(shown, listed.out.splitlines()[0])
            self.assertIn("tensors: 20\n", listed.out)
            said = self.fine("inspect", "--json", path).json
            self.assertTrue(said["file"].endswith(shown))
            self.assertEqual(len(said["tensors"]), 20)
            self.assertEqual(self.fine("tokenize", "--json", "-m", path, "-p", "Hello").json,
                             {"ids": plain["prompt_ids"]})
            os.unlink(path)
            self.refused(1, ["-m", path, "-p", "x"], "No such file")

    def test_long_names_stay_utf8_in_sentences(self):
        for pad in range(4):
            path = "/" + "a" * pad + "\u65e5" * 300
            done = subprocess.run([*FAKRUN, "-m", path, "-p", "x"], env=environment(),
                                  capture_output=True, timeout=TIMEOUT, check=False)
            self.assertEqual(done.returncode, 1)
            done.stderr.decode("utf-8")

    def test_a_deleted_working_directory(self):
        for args in (["-m", model("tiny-f32"), "-p", "Hello", "-n", "4"],
                     ["inspect", model("tiny-f32")], ["backends", "-v"],
                     ["tokenize", "-m", model("tiny-f32"), "-p", "Hello"]):
            here = self.fine(*args)
            gone = tempfile.mkdtemp(dir=ROOM)
            there = self.fine(*args, cwd=gone, preexec_fn=lambda folder=gone: os.rmdir(folder))
            self.assertEqual(without_room(there.bytes), without_room(here.bytes))

    def test_context_larger_than_the_model(self):
        self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--ctx", "129"], "129", "128")
        self.assertEqual(len(self.generate("-p", "a", "--ctx", "128", "-n", "2")["ids"]), 2)

    def test_dtypes(self):
        for dtype in ["file"] + DTYPES:
            said = self.generate("-p", "Hello", "-n", "6", "--dtype", dtype)
            self.assertEqual(len(said["ids"]), 6)
            if dtype != "file":  # as a file of that type, made from the same weights
                made = self.generate("-p", "Hello", "-n", "6", name=f"tiny-{dtype}")
                if dtype in ("f32", "f16", "bf16"):
                    self.assertEqual(said["ids"], made["ids"])
        self.assertEqual(self.generate("-p", "x", "-n", "3", "--dtype", "file")["ids"],
                         self.generate("-p", "x", "-n", "3", "--dtype", "f32")["ids"])

    def test_an_impossible_dtype(self):
        odd = room("odd.gguf")
        make(odd, "--width", "48", "--heads", "3", "--kv-heads", "1", "--ffn", "80")
        self.fine("-m", odd, "-p", "x", "-n", "2", "--dtype", "f16")
        for dtype in ("q8_0", "q4_0", "q4_1"):
            self.refused(2, ["-m", odd, "-p", "x", "--dtype", dtype], dtype, "48", "32")

    def test_k_formats(self):
        for dtype in K_DTYPES:
            said = self.generate("-p", "Hello", "-n", "6", "--dtype", dtype, name="wide-f32")
            made = self.generate("-p", "Hello", "-n", "6", name=f"tiny-{dtype}")
            self.assertEqual(said["ids"], made["ids"])
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--dtype", dtype],
                         f"rows of 64; {dtype} needs a multiple of 256")

    def test_activations(self):
        for name in ("tiny-f32", "tiny-q8_0", "tiny-q4_1"):
            for act in ("f32", "q8"):
                said = self.generate("-p", "Hello", "-n", "6", "--act", act, name=name)
                self.assertEqual(len(said["ids"]), 6)
        self.assertEqual(self.generate("-p", "a", "-n", "6", "--act", "q8", name="tiny-q4_0")["ids"],
                         self.generate("-p", "a", "-n", "6", name="tiny-q4_0")["ids"])  # the default


class Prompts(Case):
    def test_the_same_from_everywhere(self):
        text = "Hello the world"
        args = ["-m", model("tiny-f32"), "-n", "8"]
        shown = self.fine(*args, "-p", text).bytes
        path = room("prompt.txt", text.encode())
        self.assertEqual(self.fine(*args, "-f", path).bytes, shown)
        self.assertEqual(self.fine(*args, "-f", "-", stdin=text.encode()).bytes, shown)
        self.assertNotEqual(self.fine(*args, "-f", "-", stdin=b"other").bytes, shown)

    def test_any_bytes(self):
        every = bytes(range(256)) * 3
        result = self.fine("-m", long_model(), "-n", "4", "-f", room("bytes.txt", every), "--json")
        self.assertGreater(len(result.json["prompt_ids"]), 256)
        self.fine("-m", model("tiny-f32"), "-n", "4", "-p", b"\xff\xfe\x80")

    def test_an_empty_prompt(self):
        for args in (["-p", ""], ["-f", "/dev/null"], ["-f", "-"], ["-f", room("empty.txt", b"")]):
            self.refused(2, ["-m", model("tiny-f32"), *args], "prompt is empty")

    def test_prompt_files_that_cannot_be_read(self):
        for command in ([], ["tokenize"]):
            args = [*command, "-m", model("tiny-f32"), "-f"]
            self.refused(1, [*args, room("missing.txt")], "missing.txt", "No such file")
            self.refused(1, [*args, ROOM], "Is a directory")
            self.refused(1, [*args, "-"], preexec_fn=lambda: os.close(0))

    def test_longer_than_the_context(self):
        start = time.monotonic()
        path = room("big.txt", b"a " * 500000)
        self.refused(2, ["-m", model("tiny-f32"), "-f", path], "prompt has 500001 tokens",
                     "context is 128")
        self.assertLess(time.monotonic() - start, 30)
        self.refused(2, ["-m", model("tiny-f32"), "-p", "a a a a a", "--ctx", "4"], "prompt has",
                     "tokens; context is 4")

    def test_exactly_the_context(self):
        ids = self.fine("tokenize", "-m", model("tiny-f32"), "-p", "!!!!", "--json").json["ids"]
        said = self.generate("-p", "!!!!", "--ctx", str(len(ids)))
        self.assertEqual((len(said["ids"]), said["finish"]), (1, "context"))


if __name__ == "__main__":
    main()
