#!/usr/bin/env python3
"""Files of every kind: malformed, of the other byte order, in parts, no model at all.  Usage: see
common.py."""
import os
import resource
import struct
import tempfile

from common import (DTYPES, FAKRUN, K_DTYPES, ROOM, Case, contents, container, main, make, model,
                    room, text)


class Files(Case):
    def commands(self, path):
        return (["-m", path, "-p", "x"], ["inspect", path], ["inspect", "--json", path],
                ["inspect", "--plan", path], ["tokenize", "-m", path, "-p", "x"])

    def test_malformed_files(self):
        """A sample of test_gguf_faults through the commands, with 256 MB to live in."""
        good = contents(model("tiny-f32"))

        def patched(after, skip, form, was, value):
            data = bytearray(good)
            at = data.index(after) + len(after) + skip
            self.assertEqual(struct.unpack_from(form, data, at)[0], was)
            struct.pack_into(form, data, at, value)
            return data

        def alive():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))

        limit = {} if b"asan" in contents(FAKRUN[-1]) else {"preexec_fn": alive}
        huge, embed, down = 2**64 - 1, b"token_embd.weight", b"blk.1.ffn_down.weight"
        for data, *parts in (
            (patched(b"GGUF", 4, "<Q", 20, huge), str(huge), "tensors cannot be in"),
            (patched(b"GGUF", 12, "<Q", 20, 2**61), str(2**61), "keys cannot be in"),
            (patched(b"general.architecture", 4, "<Q", 5, huge), '"general.architecture"', str(huge)),
            (patched(b"ggml.tokens", 8, "<Q", 302, 2**61 + 1), "ggml.tokens", str(2**61 + 1)),
            (patched(embed, 0, "<I", 2, 5), '"token_embd.weight" has 5 dimensions', "4"),
            (patched(embed, 4, "<Q", 64, 0), '"token_embd.weight" has 0 as dimension 1 of 2'),
            (patched(embed, 12, "<Q", 302, 2**62), '"token_embd.weight"', str(2**62)),
            (patched(down, 20, "<I", 0, 77), "blk.1.ffn_down.weight has the unknown type 77"),
            (patched(down, 24, "<Q", 299520, 0), '"blk.1.ffn_down.weight"', '"token_embd.weight"'),
        ):
            path = room("bad.gguf", data)
            for args in (["-m", path, "-p", "x"], ["inspect", "--plan", path]):
                self.refused(1, args, "bad.gguf: ", *parts, **limit)

    def test_more_tokens_than_rows(self):
        data = bytearray(contents(model("tiny-f32")))
        at = data.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 8
        self.assertEqual(struct.unpack_from("<Q", data, at)[0], 302)
        struct.pack_into("<Q", data, at, 301)
        self.refused(1, ["-m", room("rows.gguf", data), "-p", "x"],
                     "rows.gguf: tokenizer.ggml.tokens has 302 elements, token_embd.weight only 301")

    def test_the_other_byte_order(self):
        for dtype in DTYPES + K_DTYPES:
            little = self.generate("-p", "Hello the", "-n", "20", name=f"tiny-{dtype}")
            big = self.generate("-p", "Hello the", "-n", "20", name=f"big-{dtype}")
            self.assertEqual(big["ids"], little["ids"], dtype)
            self.assertEqual(big["text"], little["text"], dtype)
            shown = self.fine("inspect", model(f"big-{dtype}")).out
            self.assertIn("GGUF version 3, big-endian, ", shown.splitlines()[0])
            self.assertNotIn("endian", self.fine("inspect", model(f"tiny-{dtype}")).out)
        for name, big in (("tiny-f32", False), ("big-f32", True)):
            said = self.fine("inspect", "--json", model(name)).json
            self.assertIs(said["big_endian"], big)
        twins = [self.fine("inspect", "--json", model(n)).json for n in ("tiny-f16", "big-f16")]
        for key in ("metadata", "tensors", "model"):
            self.assertEqual(twins[0][key], twins[1][key])

    def test_split_files(self):
        whole = self.generate("-p", "Hello the", "-n", "20", name="tiny-q8_0")
        for order in ([], ["--big-endian"]):
            for count in (2, 3, 40):  # more parts than tensors: some have none
                folder = tempfile.mkdtemp(dir=ROOM)
                make(os.path.join(folder, "s.gguf"), "--dtype", "q8_0", "--split", str(count), *order)
                part = [os.path.join(folder, f"s-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
                said = self.fine("-m", part[0], "-p", "Hello the", "-n", "20", "--json", "--ignore-eos")
                self.assertEqual(said.json["ids"], whole["ids"])
                listed = self.fine("inspect", "--json", part[0]).json
                self.assertEqual((listed["parts"], len(listed["tensors"])), (count, 20))
                self.assertEqual(listed["bytes"], sum(os.path.getsize(p) for p in part))
                self.assertIn(f", {count} parts, ", self.fine("inspect", part[0]).out.splitlines()[0])
                for args in self.commands(part[1]):
                    self.refused(1, args, f"part 2 of {count}: open s-00001-of-{count:05}.gguf")
                os.unlink(part[-1])
                for args in self.commands(part[0]):
                    self.refused(1, args, f"part {count} of {count} is missing",
                                 os.path.basename(part[-1]))

    def test_any_container_is_listed(self):
        """No tensors, no dimensions, no keys, unknown types of tensors, any architecture: exit 0."""
        ones = struct.pack("<f", 1)
        kinds = {0: b"B", 1: b"b", 2: b"H", 3: b"h", 4: b"I", 5: b"i", 6: b"f", 7: b"?", 10: b"Q",
                 11: b"q", 12: b"d"}
        every = [(f"k{k}", k, struct.pack(b"<" + c, 1)) for k, c in kinds.items()]
        every += [(f"a{k}", 9, struct.pack("<IQ", k, 3) + 3 * struct.pack(b"<" + c, 1))
                  for k, c in kinds.items()]
        every += [("none", 9, struct.pack("<IQ", 8, 0)), ("k8", 8, text("")),
                  ("a8", 9, struct.pack("<IQ", 8, 9) + 9 * text("\u00e9"))]

        def tensor(name, dims, kind):
            return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, 0)

        def bare(infos):
            head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), 0) + b"".join(infos)
            return head + bytes(-len(head) % 32) + ones * 8

        vocabulary = [("general.architecture", 8, text("llama")),
                      ("tokenizer.ggml.model", 8, text("gpt2"))]
        for name, data, keys, tensors in (
            ("nothing", container([]), 0, 0),
            ("keys", container(every), len(every), 0),
            ("tensors", container([], ["one", "two"]), 0, 2),
            ("vocabulary", container(vocabulary), 2, 0),
            ("number", container([("general.architecture", 4, bytes(4))]), 1, 0),
            ("empty", container([("general.architecture", 8, text(""))]), 1, 0),
            ("cut", container([("general.architecture", 8, text(b"llama\0x"))]), 1, 0),
            ("scalar", bare([tensor("s", [], 0)]), 0, 1),
            ("unknown", bare([tensor("u", [3, 5], 199)]), 0, 1),
            ("four", bare([tensor("f", [1, 2, 1, 2], 0)]), 0, 1),
        ):
            path = room(f"{name}.gguf", data)
            said = self.fine("inspect", path).out
            self.assertIn(f"metadata: {keys} keys\n", said)
            self.assertIn(f"tensors: {tensors}\n", said)
            self.assertIn("fak cannot run it: ", said)
            listed = self.fine("inspect", "--json", path).json
            self.assertEqual((len(listed["metadata"]), len(listed["tensors"])), (keys, tensors))
            self.assertTrue(listed["not_a_model"].startswith(f"{name}.gguf: "), listed)
            self.refused(1, ["-m", path, "-p", "x"], f"{name}.gguf: ")
        listed = self.fine("inspect", "--json", room("scalar.gguf")).json
        self.assertEqual(listed["tensors"][0]["shape"], [])
        said = self.fine("inspect", room("unknown.gguf")).out
        self.assertIn("u                                ?     3 x 5\n", said)


if __name__ == "__main__":
    main()
