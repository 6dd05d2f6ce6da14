#!/usr/bin/env python3
"""fakrun inspect and fakrun tokenize.  Usage: see common.py."""
import json
import os
import struct
import time

from common import Case, container, main, model, room, text


class Inspect(Case):
    def test_text(self):
        said = self.fine("inspect", model("tiny-untied"))
        self.assertEqual(said.err, "")
        self.assertIn("GGUF version 3", said.out.splitlines()[0])
        for part in ("metadata: 20 keys\n", "tensors: 30\n", '  general.architecture = "llama"\n',
                     "output.weight", "64 x 302", "layers 3;", "tied false;"):
            self.assertIn(part, said.out)

    def test_json(self):
        for name, tensors, layers in (("tiny-f32", 20, 2), ("tiny-q4_1", 20, 2),
                                      ("tiny-untied", 30, 3)):
            said = self.fine("inspect", "--json", model(name)).json
            self.assertEqual(set(said), {"file", "version", "big_endian", "parts", "bytes", "metadata",
                                         "tensors", "model", "backend", "memory"})
            self.assertEqual((said["big_endian"], said["parts"]), (False, 1))
            self.assertEqual(said["memory"]["context"], 128)
            self.assertEqual(said["memory"]["kv"], layers * 2 * 32 * 4 * 128)
            self.assertEqual(said["bytes"], os.path.getsize(model(name)))
            self.assertEqual((len(said["tensors"]), len(said["metadata"])), (tensors, 20))
            self.assertEqual(said["model"]["layers"], layers)
            self.assertEqual(said["model"]["vocab"], 302)
            values = {m["key"]: m["value"] for m in said["metadata"]}
            self.assertEqual(values["llama.block_count"], layers)
            self.assertEqual(values["tokenizer.ggml.tokens"]["count"], 302)
            self.assertEqual(values["tokenizer.ggml.tokens"]["first"][0], "<|endoftext|>")
            first = said["tensors"][0]
            self.assertEqual((first["name"], first["shape"]), ("token_embd.weight", [64, 302]))

    def test_plan(self):
        for name, layers in (("tiny-f32", 2), ("tiny-untied", 3)):
            said = self.fine("inspect", "--plan", model(name)).out
            lines = said.splitlines()
            repeats = [l for l in lines if l.startswith("repeat ")]
            self.assertEqual(len(repeats), 1)
            self.assertIn(f"times {layers}", repeats[0])
            tails = [l.split()[1] for l in lines if l.startswith("tail ")]
            self.assertEqual(sorted(tails), ["argmax", "logits"])
            whole = self.fine("inspect", "--plan", "-v", model(name)).out
            self.assertGreater(whole.count("\nop "), said.count("\nop "))
            self.assertIn("token_embd.weight", said)

    def test_no_model_is_listed(self):
        path = room("other.gguf", container([
            ("general.architecture", 8, text("unheard-of")),
            ("a.number", 6, struct.pack("<f", 0.5)),
            ("a.list", 9, struct.pack("<IQ3i", 5, 3, 1, -2, 3)),
        ], ["one", "two"]))
        said = self.fine("inspect", path)
        for part in ("metadata: 3 keys", "a.number = 0.5\n", "tensors: 2\n", "fak cannot run it: ",
                     "unheard-of"):
            self.assertIn(part, said.out)
        listed = self.fine("inspect", "--json", path).json
        self.assertIn("unheard-of", listed["not_a_model"])
        self.assertNotIn("model", listed)
        self.assertEqual([t["name"] for t in listed["tensors"]], ["one", "two"])
        self.assertEqual({m["key"]: m["value"] for m in listed["metadata"]}["a.list"],
                         {"array_of": "i32", "count": 3, "first": [1, -2, 3]})
        self.refused(1, ["inspect", "--plan", path], "unheard-of")
        self.refused(1, ["-m", path, "-p", "x"], "other.gguf")
        empty = room("nothing.gguf", container([]))
        self.assertIn("metadata: 0 keys\ntensors: 0\n", self.fine("inspect", empty).out)

    def test_strings_of_strangers(self):
        """What a file says does not reach the terminal as control characters, nor half a letter."""
        values = [("general.architecture", 8, text("x")),
                  ("long", 8, text("\u00e9" * 200)), ("longer", 8, text("a" + "\u00e9" * 200)),
                  ("bytes", 8, text(b"\xff\x00\x1b[31m")), ("k\x1b[31mey", 8, text("\x1b[31m"))]
        path = room("strange.gguf", container(values, ["te\x1b[31mn", "\u65e5"]))
        said = self.fine("inspect", path)
        self.assertNotIn("\x1b", said.out)  # said.out is decoded strictly
        self.assertIn("\u65e5", said.out)
        listed = self.fine("inspect", "--json", path).json
        self.assertIn("k\x1b[31mey", [m["key"] for m in listed["metadata"]])
        self.assertIn("\ufffd\0\x1b[31m", [m["value"] for m in listed["metadata"]])
        values = [(b"nul\0key", 8, text("x")), (b"latin\xe9", 8, text("y"))]
        path = room("stranger.gguf", container(values))
        result = self.run_it("inspect", path)
        if result.code == 0:  # refusing them is fine too
            for key in ("nul", "key", "latin\ufffd"):
                self.assertIn(key, result.out)
            self.assertEqual(len(self.fine("inspect", "--json", path).json["metadata"]), 2)
        else:
            self.assertEqual(result.code, 1)

    def test_numbers_of_strangers(self):
        values = [("general.architecture", 8, text("x")),
                  ("nan", 6, struct.pack("<f", float("nan"))),
                  ("inf", 12, struct.pack("<d", float("inf"))),
                  ("big", 10, struct.pack("<Q", 2**64 - 1)),
                  ("list", 9, struct.pack("<IQ2f", 6, 2, float("nan"), 1.5)), ("last", 4, bytes(4))]
        path = room("numbers.gguf", container(values))
        said = self.fine("inspect", path)
        self.assertIn("metadata: 6 keys\n", said.out)
        for key in ("nan", "inf", "big", "list", "last"):
            self.assertIn(f"  {key} = ", said.out)
        values = {m["key"]: m["value"] for m in self.fine("inspect", "--json", path).json["metadata"]}
        self.assertEqual(set(values), {"general.architecture", "nan", "inf", "big", "list", "last"})
        self.assertEqual(values["list"]["count"], 2)
        self.assertEqual(len(values["list"]["first"]), 2)  # none is dropped
        self.assertGreater(int(values["big"]), 0)

    def test_plan_or_json(self):
        """Both are asked for: one object, or a refusal, but not one of them silently."""
        result = self.run_it("inspect", "--plan", "--json", model("tiny-f32"))
        if result.code == 0:
            self.assertIn("plan", result.json)
        else:
            self.assertEqual((result.code, result.bytes), (2, b""))


class Tokenize(Case):
    def ids(self, *args, **more):
        said = self.fine("tokenize", "-m", model("tiny-f32"), "--json", *args, **more).json
        self.assertEqual(set(said), {"ids"})
        return said["ids"]

    def test_text(self):
        said = self.fine("tokenize", "-m", model("tiny-f32"), "-p", "Hello the\n\"\u00e9")
        self.assertEqual(said.err, "")
        ids, pieces = zip(*(line.split("\t") for line in said.out.splitlines()))
        self.assertEqual([int(i) for i in ids], self.ids("-p", "Hello the\n\"\u00e9"))
        self.assertEqual(json.loads(pieces[0]), "Hello")
        self.assertEqual(json.loads(pieces[1]), " the")
        self.assertTrue(all(p.startswith('"') and p.endswith('"') for p in pieces))

    def test_the_same_from_everywhere(self):
        for data in (b"Hello", b"a\n", b"\xff\xfe\x80", bytes(range(1, 256)), b"\x00a\x00"):
            path = room("text.txt", data)
            ids = self.ids("-f", path)
            self.assertEqual(self.ids("-f", "-", stdin=data), ids)
            self.assertEqual(self.ids(stdin=data), ids)  # the default
            if 0 not in data:
                self.assertEqual(self.ids("-p", data), ids)
            self.assertGreater(len(ids), 0)

    def test_bytes_that_are_not_utf8(self):
        self.assertEqual(len(self.ids("-p", b"\xff")), 1)
        self.assertEqual(len(self.ids("-p", b"\xc3\xa9")), 2)
        self.assertIn("\ufffd", self.fine("tokenize", "-m", model("tiny-f32"), "-p", b"\xff").out)

    def test_special_tokens(self):
        self.assertEqual(self.ids("-p", "<|endoftext|><|im_start|><|im_end|>"), [0, 1, 2])
        self.assertEqual(self.ids("-p", "<|im_end|"), self.ids("-p", "<|im_end|"))
        self.assertNotIn(2, self.ids("-p", "<|im_end|"))
        self.assertIn(2, self.ids("-p", "a<|im_end|>b"))

    def test_empty(self):
        said = self.fine("tokenize", "-m", model("tiny-f32"), "-p", "", "--json")
        self.assertEqual(said.bytes, b'{"ids": []}\n')
        self.assertEqual(self.fine("tokenize", "-m", model("tiny-f32"), "-p", "").bytes, b"")
        self.assertEqual(self.ids("-f", "-"), [])

    def test_much(self):
        data = b"Hello the world and you\n" * 20000
        start = time.monotonic()
        self.assertEqual(self.ids(stdin=data), self.ids(stdin=data[:24]) * 20000)
        self.ids(stdin=b"a" * 200000)  # one run
        self.assertLess(time.monotonic() - start, 60)


if __name__ == "__main__":
    main()
