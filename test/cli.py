#!/usr/bin/env python3
"""Runs fakrun as a user would, on tiny models: exit code, standard output and standard error.

usage: test/cli.py FAKRUN PLUGINS_DIR MODELS_DIR [unittest's arguments]
PLUGINS_DIR has fak-backend-cpu-ref.so.  MODELS_DIR has tiny-f32, -f16, -bf16, -q8_0, -q4_0, -q4_1
(scripts/make-model --dtype), big-f32 and so on (--big-endian), and tiny-untied (--untied --layers 3 --dtype f32), with or without .gguf.
"""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
MAKE_MODEL = os.path.join(HERE, "..", "scripts", "make-model")
DTYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"]
KEYS = {"prompt_ids", "ids", "text", "finish", "backend", "timing", "ops"}
TIMEOUT = 120  # seconds, of a run that should take milliseconds; sanitizers are slow

FAKRUN = PLUGINS = MODELS = ROOM = ""  # absolute; ROOM is a folder of our own
SO = ""  # the reference as a file
LONG = ODD = ""  # models that are made here


def setUpModule():
    global ROOM, LONG, ODD
    ROOM = tempfile.mkdtemp(prefix="fak-test-cli-")
    LONG, ODD = os.path.join(ROOM, "long.gguf"), os.path.join(ROOM, "odd.gguf")
    make(LONG, "--context", "200000", "--dtype", "f32")
    make(ODD, "--width", "48", "--heads", "3", "--kv-heads", "1", "--ffn", "80", "--dtype", "f32")


def tearDownModule():
    shutil.rmtree(ROOM)


def make(path, *options):
    subprocess.run([sys.executable, MAKE_MODEL, path, *options], check=True)


def model(name):
    path = os.path.join(MODELS, name + ".gguf")
    return path if os.path.exists(path) else os.path.join(MODELS, name)


def room(name, data=None):
    """The path of a file in ROOM, written first when data is given."""
    path = os.path.join(ROOM, name)
    if data is not None:
        with open(path, "wb") as file:
            file.write(data)
    return path


def without_room(printed):
    """What is printed, less how much memory the machine has at the moment."""
    return re.sub(rb"(has |\"there\": )[\d.]+( .?B)?", rb"\1", printed)


def environment(**more):
    """What every run gets: nothing of ours but what is asked for (None takes away)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FAK_", "LC_", "LANG"))}
    env.update({k: v for k, v in more.items() if v is not None})
    for key in [k for k, v in more.items() if v is None]:
        env.pop(key, None)
    return env


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class Result:
    def __init__(self, code, out, err):
        self.code, self.bytes = code, out
        self.err = err.decode("utf-8", "backslashreplace")

    @property
    def out(self):
        return self.bytes.decode("utf-8")  # strictly: what is printed is UTF-8

    @property
    def json(self):
        assert self.bytes.endswith(b"\n") and self.bytes.count(b"\n") == 1, self.bytes
        return json.loads(self.bytes)


class Case(unittest.TestCase):
    maxDiff = None

    def check(self, result, args):
        """What holds for every run."""
        said = f"{args}: exit {result.code}\n{result.err}"
        self.assertGreaterEqual(result.code, 0, said)  # no signal ended it
        for line in result.err.splitlines():
            self.assertTrue(line.startswith("fakrun: "), said)
            self.assertNotIn("(null)", line)
        self.assertTrue(not result.err or result.err.endswith("\n"), said)
        return result

    def run_it(self, *args, env=None, stdin=b"", timeout=TIMEOUT, **more):
        more.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([FAKRUN, *args], env=env or environment(), input=stdin,
                              stderr=subprocess.PIPE, timeout=timeout, check=False, **more)
        return self.check(Result(done.returncode, done.stdout or b"", done.stderr), args)

    def fine(self, *args, **more):
        result = self.run_it(*args, **more)
        self.assertEqual(result.code, 0, f"{args}\n{result.err}")
        return result

    def refused(self, code, args, *parts, **more):
        """The code, nothing on standard output, and a last sentence that has all the parts."""
        result = self.run_it(*args, **more)
        self.assertEqual(result.code, code, f"{args}\n{result.err}")
        self.assertEqual(result.bytes, b"", args)
        self.assertTrue(result.err, f"{args}: no sentence")
        for part in parts:
            self.assertIn(part, result.err.splitlines()[-1])
        return result

    def generate(self, *args, name="tiny-f32", **more):
        """The JSON object of a generation."""
        result = self.fine("-m", model(name), "--json", "--ignore-eos", *args, **more)
        return result.json


# ---- the command line ----------------------------------------------------------------------------


class CommandLine(Case):
    def test_no_arguments(self):
        result = self.run_it_raw()
        self.assertEqual(result.code, 2)
        self.assertEqual(result.bytes, b"")  # nothing was asked for: it is no result
        self.assertIn("usage: fakrun", result.err)

    def run_it_raw(self, *args):
        done = subprocess.run([FAKRUN, *args], env=environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=TIMEOUT, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    def test_help_has_examples(self):
        for command in ([], ["run"], ["backends"], ["inspect"], ["tokenize"]):
            for flag in ("--help", "-h"):
                result = self.fine(*command, flag)
                self.assertEqual(result.err, "")
                self.assertTrue(result.out.startswith("usage: fakrun"))
                examples = result.out.partition("\nexamples:\n")[2]
                self.assertIn("  fakrun", examples or "none")
                self.assertIn("--help", result.out)
                for line in result.out.splitlines():
                    self.assertLessEqual(len(line), 100)
        for word in ("backends", "inspect", "tokenize"):
            self.assertIn(word, self.fine("--help").out)

    def test_help_beside_errors(self):
        self.assertIn("usage:", self.fine("-m", "missing", "--help").out)

    def test_unknown_command(self):
        self.refused(2, ["frobnicate"], "frobnicate", "backends", "inspect", "tokenize")
        self.refused(2, ["Inspect", model("tiny-f32")], "Inspect")
        self.refused(2, [""], "backends")

    def test_unknown_option(self):
        for command in ([], ["backends"], ["inspect"], ["tokenize"]):
            self.refused(2, [*command, "--frobnicate"], "--frobnicate", "--help")
            self.refused(2, [*command, "-Z"], "-Z", "--help")
            self.refused(2, [*command, "--frobnicate=1"], "--frobnicate")

    def test_unknown_letter_in_a_cluster(self):
        self.refused(2, ["inspect", "-Zv", model("tiny-f32")], "option -Z;")
        self.refused(2, ["inspect", "-vZ", model("tiny-f32")], "option -Z;")

    def test_value_missing(self):
        self.refused(2, ["-m"], "--model", "FILE")
        self.refused(2, ["-m", "x", "--ctx"], "--ctx", "N")

    def test_unexpected_words(self):
        self.refused(2, ["-m", model("tiny-f32"), "-p", "a", "word"], '"word"')
        self.refused(2, ["backends", "word"], '"word"')
        self.refused(2, ["inspect", model("tiny-f32"), "word"], '"word"')
        self.refused(2, ["inspect"], "MODEL")

    def test_model_missing(self):
        self.refused(2, ["-p", "x"], "-m")
        self.refused(2, ["tokenize", "-p", "x"], "-m")

    def test_text_missing_or_twice(self):
        self.refused(2, ["-m", model("tiny-f32")], "-p", "-f")
        for command in ([], ["tokenize"]):
            self.refused(2, [*command, "-m", model("tiny-f32"), "-p", "x", "-f", "y"], "not", "both")

    def test_numbers_out_of_range(self):
        for wrong in ("0", "-1", "99999999999", "4294967297", "1048577"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "-n", wrong], "--predict", wrong,
                         "1 to 1048576")
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--ctx", wrong], "--ctx", wrong,
                         "1 to 1048576")
        for wrong in ("abc", "", "1x", "1.5"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "-n", wrong], "number", f'"{wrong}"')

    def test_temperature(self):
        self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--temp", "1"], "--temp is 1", "only 0")
        self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--temp", "hot"], "number", "hot")
        self.generate("-p", "x", "-n", "1", "--temp", "0")

    def test_choices(self):
        for wrong in ("q5_0", "F32", "", "f", "f32|f16"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--dtype", wrong], "--dtype",
                         f'"{wrong}"', "f32")
        for wrong in ("f16", "q8|f32", "q"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--act", wrong], "--act",
                         f'"{wrong}"', "q8|f32")


# ---- models and prompts --------------------------------------------------------------------------


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
            done = subprocess.run([FAKRUN, "-m", path, "-p", "x"], env=environment(),
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
            said = [re.sub(rb"; the machine has [^\n]*", b"", r.bytes) for r in (here, there)]
            self.assertEqual(said[1], said[0])  # what memory is free changes by the second

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
        self.fine("-m", ODD, "-p", "x", "-n", "2", "--dtype", "f16")
        for dtype in ("q8_0", "q4_0", "q4_1"):
            self.refused(2, ["-m", ODD, "-p", "x", "--dtype", dtype], dtype, "48", "32")

    def test_activations(self):
        for name in ("tiny-f32", "tiny-q8_0", "tiny-q4_1"):
            for act in ("f32", "q8"):
                said = self.generate("-p", "Hello", "-n", "6", "--act", act, name=name)
                self.assertEqual(len(said["ids"]), 6)
        self.assertEqual(self.generate("-p", "a", "-n", "6", "--act", "q8", name="tiny-q4_0")["ids"],
                         self.generate("-p", "a", "-n", "6", name="tiny-q4_0")["ids"])  # the default


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

        limit = {} if b"asan" in contents(FAKRUN) else {"preexec_fn": alive}
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
        for dtype in DTYPES:
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
        result = self.fine("-m", LONG, "-n", "4", "-f", room("bytes.txt", every), "--json")
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


# ---- results -------------------------------------------------------------------------------------


class Results(Case):
    def test_json_has_the_documented_keys(self):
        said = self.generate("-p", "Hello", "-n", "5")
        self.assertEqual(set(said), KEYS)
        self.assertEqual(set(said["backend"]), {"name", "device", "class", "kind", "why"})
        self.assertEqual(set(said["timing"]), {"load_s", "prefill_tok_s", "decode_tok_s"})
        self.assertEqual(set(said["ops"]), {"native", "host"})
        self.assertEqual(said["backend"]["name"], "cpu-ref")
        self.assertEqual(said["backend"]["class"], "reference")
        self.assertEqual(said["ops"]["host"], 0)
        self.assertGreater(said["ops"]["native"], 0)
        for rate in said["timing"].values():
            self.assertGreater(rate, 0)
        ids = self.fine("tokenize", "-m", model("tiny-f32"), "-p", "Hello", "--json").json["ids"]
        self.assertEqual(said["prompt_ids"], ids)

    def test_finish_and_count(self):
        for count in (1, 2, 7, 100):
            said = self.generate("-p", "Hello", "-n", str(count))
            self.assertEqual((len(said["ids"]), said["finish"]), (count, "length"))
        said = self.generate("-p", "Hello", "-n", "1048576")
        self.assertEqual(said["finish"], "context")
        self.assertEqual(len(said["ids"]), 128 - len(said["prompt_ids"]) + 1)
        said = self.generate("-p", "Hello", "-n", "50", "--ctx", "16")
        self.assertEqual(said["finish"], "context")
        self.assertEqual(len(said["ids"]), 16 - len(said["prompt_ids"]) + 1)
        for i in said["ids"]:
            self.assertIn(i, range(302))

    def test_a_full_context_is_told(self):
        args = ["-m", model("tiny-f32"), "-p", "Hello", "--ctx", "8", "--ignore-eos"]
        self.assertIn("context of 8 is full", self.fine(*args).err)
        self.assertEqual(self.fine(*args, "-q").err, "")
        self.assertNotIn("full", self.fine(*args, "-n", "2").err)

    def test_json_text_is_the_streamed_text(self):
        for name in ["tiny-" + d for d in DTYPES] + ["tiny-untied"]:
            for prompt in ("Hello", "a", "and the", "\u65e5", "<|im_start|>user"):
                args = ["-m", model(name), "-p", prompt, "-n", "40"]
                said = self.fine(*args, "--json").json
                streamed = self.fine(*args).bytes
                self.assertEqual(streamed, said["text"].encode() + b"\n")

    def test_special_tokens_are_text_only_when_asked(self):
        for seed in range(40):  # until some prompt makes a control token
            args = ["-m", model("tiny-f32"), "-p", f"{seed} a", "-n", "60", "--ignore-eos"]
            said = self.fine(*args, "--json").json
            if not {0, 1, 2} & set(said["ids"]):
                continue
            shown = self.fine(*args, "--json", "--special").json
            self.assertEqual(shown["ids"], said["ids"])
            self.assertIn("<|", shown["text"])
            self.assertNotIn("<|endoftext|>", said["text"])
            return
        self.skipTest("no control token was made")

    def test_alike_however_it_is_run(self):
        for name in ("tiny-f32", "tiny-q4_1", "tiny-untied"):
            plain = self.generate("-p", "Hello the", "-n", "30", name=name)
            for args in (["-o", "fused=1"], ["-o", "fused=0"], ["--backend", "cpu-ref"],
                         ["--backend-path", SO], ["--backend-path", SO, "-o", "fused=1"],
                         ["--ctx", "64"], ["-q"], ["-v"]):
                other = self.generate("-p", "Hello the", "-n", "30", *args, name=name)
                self.assertEqual(other["ids"], plain["ids"], (name, args))
                self.assertEqual(other["text"], plain["text"])
        fused = self.generate("-p", "Hello the", "-n", "30", "-o", "fused=1")
        plain = self.generate("-p", "Hello the", "-n", "30")
        self.assertLess(fused["ops"]["native"], plain["ops"]["native"])  # it did fuse

    def test_stdout_is_the_text_only(self):
        args = ["-m", model("tiny-f32"), "-p", "Hello", "-n", "8"]
        plain = self.fine(*args)
        self.assertEqual(len(plain.err.splitlines()), 2)
        self.assertIn("backend cpu-ref (reference; ", plain.err.splitlines()[0])
        self.assertIn("needs ", plain.err.splitlines()[1])  # memory, and what there is
        quiet = self.fine(*args, "--quiet")
        self.assertEqual(quiet.err, "")
        verbose = self.fine(*args, "--verbose")
        self.assertIn("prefill", verbose.err)
        self.assertIn("tok/s", verbose.err)
        self.assertEqual({plain.bytes, verbose.bytes}, {quiet.bytes})
        self.assertEqual(self.fine(*args, "--json", "-q").err, "")

    def test_quiet_still_tells_errors(self):
        self.refused(1, ["-q", "-m", room("missing.gguf"), "-p", "x"], "No such file")
        self.refused(2, ["-q", "-m", model("tiny-f32"), "-p", "x", "--backend", "nope"], "nope")

    def test_locales_change_nothing(self):
        have = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout
        comma = [l for l in have.split() if l.lower().startswith(("de_de.utf", "fr_fr.utf", "de_"))]
        commands = (["-m", model("tiny-f32"), "-p", "Hello", "-n", "8"],
                    ["inspect", model("tiny-f32")], ["inspect", "--json", model("tiny-f32")],
                    ["inspect", "--plan", model("tiny-f32")], ["backends", "--json"],
                    ["--temp", "0.0", "-m", model("tiny-f32"), "-p", "Hello", "-n", "8"])
        for args in commands:
            plain = self.fine(*args)
            for locale in (comma[:1] or ["de_DE.UTF-8"]) + ["C", "POSIX", "nonsense", ""]:
                other = self.fine(*args, env=environment(LC_ALL=locale, LANG=locale))
                self.assertEqual(without_room(other.bytes), without_room(plain.bytes))
            empty = {"PATH": "/nonexistent"}  # neither LANG nor HOME
            self.assertEqual(without_room(self.fine(*args, env=empty).bytes),
                             without_room(plain.bytes))
        said = self.fine("-m", model("tiny-f32"), "-p", "Hello", "--json",
                         env=environment(LC_ALL=(comma or ["de_DE.UTF-8"])[0])).json
        self.assertIsInstance(said["timing"]["load_s"], float)


# ---- output that cannot be written, and Ctrl-C -----------------------------------------------------


class Endings(Case):
    def commands(self):
        path = model("tiny-f32")
        return (["-m", path, "-p", "Hello"], ["-m", path, "-p", "Hello", "--json"],
                ["inspect", path], ["inspect", "--json", path], ["inspect", "--plan", path],
                ["tokenize", "-m", path, "-p", "Hello"],
                ["tokenize", "-m", path, "-p", "Hello", "--json"],
                ["backends"], ["backends", "--json"], ["--help"], ["inspect", "--help"])

    def assert_failed(self, args, **more):
        result = self.run_it(*args, **more)
        self.assertEqual(result.code, 1, args)
        self.assertTrue(result.err.splitlines()[-1:], f"{args}: no sentence")
        self.assertIn("written", result.err.splitlines()[-1])

    def test_a_full_disk(self):
        for args in self.commands():
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                self.assert_failed(args, stdout=full)

    def test_a_pipe_that_nobody_reads(self):
        for args in self.commands():
            with self.subTest(args=args):
                back, front = os.pipe()
                os.close(back)
                try:
                    self.assert_failed(args, stdout=front)
                finally:
                    os.close(front)

    def test_no_stdout_at_all(self):
        for args in self.commands():
            with self.subTest(args=args):
                self.assert_failed(args, stdout=None, preexec_fn=lambda: os.close(1))

    def start(self, *args):
        """A run that takes minutes.  Its pipes have no buffer here: communicate gets the rest."""
        return subprocess.Popen([FAKRUN, "-m", LONG, "--ctx", "100000", "-n", "1000000",
                                 "--ignore-eos", *args], env=environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def end(self, process):
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail("it goes on")
        return self.check(Result(process.returncode, out, err), "a long run")

    def test_a_reader_that_leaves(self):
        process = self.start("-p", "Hello", "-q")
        self.assertTrue(process.stdout.read(5))  # it streams
        process.stdout.close()
        process.stdout = None
        try:
            err = process.stderr.read()
            self.assertEqual(process.wait(TIMEOUT), 1)
        finally:
            process.kill()
            process.stderr.close()
        self.assertEqual(err.decode(), "fakrun: the result could not be written\n")

    def test_interrupted_while_it_writes(self):
        process = self.start("-p", "Hello")
        first = b""
        while len(first) < 40 and process.poll() is None:
            first += process.stdout.read(40)
        process.send_signal(signal.SIGINT)
        result = self.end(process)
        self.assertEqual(result.code, 130, result.err)
        text = first + result.bytes
        self.assertEqual(text[-1:], b"\n")
        whole = self.fine("-m", LONG, "-p", "Hello", "-n", "20", "--ignore-eos", "--ctx", "100000")
        expected = whole.out[:-1].rstrip("\ufffd").encode()  # -n may have cut a character
        self.assertGreater(len(expected), 5)
        self.assertEqual(text[: len(expected)], expected)
        text.decode("utf-8")

    def test_interrupted_with_json(self):
        process = self.start("-p", "Hello", "--json")
        line = process.stderr.readline()  # the backend: it is about to begin
        self.assertIn(b"backend cpu-ref", line)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        result = self.end(process)
        self.assertEqual(result.code, 130, result.err)
        self.assertEqual(set(result.json), KEYS)
        self.assertEqual(result.json["finish"], "stopped")
        self.assertGreater(len(result.json["ids"]), 1)

    def test_interrupted_while_it_reads_the_prompt(self):
        process = self.start("-f", room("long.txt", b"a " * 90000))
        process.stderr.readline()
        time.sleep(1)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail("Ctrl-C is not heard before the prompt is done")
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - asked, 15)
        self.assertEqual(out.strip(), b"")

    def test_interrupted_twice(self):
        process = self.start("-f", room("long.txt", b"a " * 90000))
        process.stderr.readline()
        time.sleep(1)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        process.communicate(timeout=15)
        self.assertIn(process.returncode, (130, -signal.SIGINT))

    def test_ignored_interrupts_stay_ignored(self):
        """As in a job that a shell script put into the background."""
        process = subprocess.Popen(
            [FAKRUN, "-m", LONG, "-p", "Hello", "-n", "3000", "--ignore-eos"], env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.end(process).code, 0)

    def test_little_memory(self):
        """An answer, not an abort: half a gigabyte of address space, a context that wants more."""
        if b"asan" in contents(FAKRUN):
            self.skipTest("a sanitizer needs all of the address space")
        room_bytes = 1 << 29

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (room_bytes, room_bytes))

        big = room("big.gguf")
        make(big, "--context", "1000000", "--layers", "4", "--kv-heads", "4", "--dtype", "f32")
        said = self.refused(2, ["-m", big, "-p", "x", "--ctx", "1000000"],
                            "a context of 1000000 needs ", "its address space limit has ",
                            "the largest context that fits is ", preexec_fn=limit)
        fits = int(re.search(r"fits is (\d+)", said.err)[1])
        self.fine("-m", big, "-p", "x", "-n", "1", "--ctx", str(fits), preexec_fn=limit)
        self.refused(2, ["-m", big, "-p", "x", "--ctx", str(2 * fits)], "fits", preexec_fn=limit)
        self.assertIn("its address space limit has",
                      self.fine("inspect", big, "--ctx", "1000", preexec_fn=limit).out)
        os.unlink(big)


# ---- backends ------------------------------------------------------------------------------------


class Backends(Case):
    RUN = ["-p", "Hello", "-n", "4"]

    def backend_refused(self, args, *parts, **more):
        return self.refused(2, ["-m", model("tiny-f32"), *self.RUN, *args], *parts, **more)

    def test_unknown_names(self):
        for name in ("nope", "", "CPU-REF", "cpu-ref.so", ":0", "x" * 300):
            self.backend_refused(["--backend", name], "no backend", "cpu-ref")
        self.backend_refused([], '"nope"', "cpu-ref", env=environment(FAK_BACKEND="nope"))

    def test_where_it_looked_is_told(self):
        said = self.backend_refused(["--backend", "nope"],
                                    env=environment(FAK_PLUGIN_PATH="/nonexistent/plugins"))
        self.assertIn("/nonexistent/plugins: No such file or directory", said.err)

    def test_named_devices(self):
        for spec in ("cpu-ref", "cpu-ref:0", "cpu-ref:cpu:ref"):
            self.assertIn("named with --backend", self.fine(
                "-m", model("tiny-f32"), *self.RUN, "--backend", spec).err)
        self.backend_refused(["--backend", "cpu-ref:7"], "1 device", "no number 7")
        self.backend_refused(["--backend", "cpu-ref:cpu:other"], "cpu:other")
        for wrong in ("-1", "99999999999", "+0", " 0", "0x0", ""):  # told as it was given
            self.backend_refused(["--backend", "cpu-ref:" + wrong], f"{wrong}", "cpu-ref")

    def test_named_by_the_environment(self):
        args = ["-m", model("tiny-f32"), *self.RUN]
        self.assertIn("FAK_BACKEND", self.fine(*args, env=environment(FAK_BACKEND="cpu-ref")).err)
        self.fine(*args, "--backend", "cpu-ref", env=environment(FAK_BACKEND="nope"))  # it wins
        self.assertNotIn("FAK_BACKEND", self.fine(*args, env=environment(FAK_BACKEND="")).err)

    def test_options(self):
        for args, *parts in ((["-o", "unknown=1"], "unknown", "fused"),
                             (["-o", "fused=2"], "fused"), (["-o", "fused="], "fused"),
                             (["-o", "nonsense"], "name=value", '"nonsense"'),
                             (["-o", "=1"], "name=value"), (["-o", ""], "name=value"),
                             (["-o", "x" * 300 + "=1"], "name=value"),
                             (["-o", "fused=1"] * 33, "32")):
            said = self.backend_refused(args, *parts)
            self.assertLessEqual(said.err.splitlines()[-1].count("cpu-ref"), 1)
        self.fine("-m", model("tiny-f32"), *self.RUN, "-o", "fused=0", "-o", "fused=1")

    def test_a_wrong_option_needs_no_list_of_folders(self):
        self.assertEqual(len(self.backend_refused(["-o", "nonsense"]).err.splitlines()), 1)
        self.assertEqual(len(self.backend_refused(["-o", "fused=2"]).err.splitlines()), 1)

    def test_plugin_paths(self):
        args = ["-m", model("tiny-f32"), *self.RUN]
        plain = self.fine(*args).bytes
        for path, *parts in (
            ("relative", "folder relative: ", "absolute"),
            ("./here:/nonexistent/x", "folder ./here: ", "/nonexistent/x: No such file or directory"),
            ("/nonexistent:", "an empty entry of FAK_PLUGIN_PATH"),
            (room("a file", b""), "Not a directory"),
            ("", "folder "),
        ):
            env = environment(FAK_PLUGIN_PATH=path)
            self.assertEqual(self.fine(*args, env=env).bytes, plain)
            listed = self.fine("backends", "-v", env=env).out
            for part in parts:
                self.assertIn(part, listed)
            folders = self.fine("backends", "--json", env=env).json["folders"]
            for entry in path.split(":") if path else []:
                self.assertIn(entry, [f["path"] for f in folders])

    def test_the_working_directory_is_never_looked_in(self):
        folder = tempfile.mkdtemp(dir=ROOM)
        shutil.copy(SO, os.path.join(folder, "fak-backend-here.so"))
        for path in (None, "", ".", ":"):
            listed = self.fine("backends", cwd=folder, env=environment(FAK_PLUGIN_PATH=path)).out
            self.assertNotIn("here", listed)

    def test_backend_path(self):
        args = ["-m", model("tiny-f32"), *self.RUN]
        said = self.fine(*args, "--backend-path", SO)
        self.assertIn("--backend-path", said.err)
        self.assertEqual(said.bytes, self.fine(*args).bytes)
        relative = os.path.relpath(SO, ROOM)
        self.assertEqual(self.fine(*args, "--backend-path", relative, cwd=ROOM).bytes, said.bytes)
        text = room("fak-backend-text.so", b"this is text and no library, as can be seen\n" * 3)
        self.backend_refused(["--backend-path", text], "fak-backend-text.so", "ELF")
        self.backend_refused(["--backend-path", room("plain.txt", b"x")], "plain.txt",
                             "fak-backend-NAME.so")
        self.backend_refused(["--backend-path", room("fak-backend-no.so")], "No such file")
        self.backend_refused(["--backend-path", ROOM], "fak-backend-NAME.so")
        self.backend_refused(["--backend-path", SO, "--backend", "nope"], "nope")
        other = room("fak-backend-other.so", contents(SO))
        self.backend_refused(["--backend-path", other], "calls itself cpu-ref")

    def test_list(self):
        for args in ([], ["-v"]):
            said = self.fine("backends", *args)
            self.assertEqual(said.err, "")
            self.assertIn("cpu-ref  (linked in)  loaded\n", said.out)
            self.assertIn('device 0: cpu "reference"', said.out)
        verbose = self.fine("backends", "-v").out
        for part in ("caps: ", "ops: embed, ", "-o fused=0|1", "folder /", "q4_1"):
            self.assertIn(part, verbose)
            self.assertNotIn(part, self.fine("backends").out)

    def test_list_as_json(self):
        said = self.fine("backends", "--json", env=environment(FAK_PLUGIN_PATH=PLUGINS)).json
        self.assertEqual(set(said), {"abi", "folders", "backends"})
        self.assertEqual(said["abi"], [1, 0])
        linked, file = [b for b in said["backends"] if b["name"] == "cpu-ref"]
        self.assertEqual((linked["path"], linked["state"]), ("(linked in)", "loaded"))
        self.assertEqual((file["path"], file["state"]),
                         (os.path.join(PLUGINS, "fak-backend-cpu-ref.so"), "shadowed"))
        self.assertEqual(file["why"], "shadowed by the one linked in")
        device = linked["devices"][0]
        self.assertEqual((device["id"], device["class"], device["kind"]),
                         ("cpu:ref", "reference", "cpu"))
        self.assertEqual(set(device["upload_dtypes"]), set(DTYPES))
        self.assertIn("attention", device["ops"])
        self.assertEqual([o["name"] for o in linked["options"]], ["fused"])

    def test_list_one_file(self):
        said = self.fine("backends", "--json", "--backend-path", SO).json
        self.assertEqual(said["folders"], [])
        self.assertEqual([b["state"] for b in said["backends"]], ["loaded", "loaded"])
        text = room("fak-backend-text.so", b"this is text and no library, as can be seen\n" * 3)
        result = self.run_it("backends", "--backend-path", text)
        self.assertEqual(result.code, 1)  # it was looked at, and it is no backend
        self.assertIn("invalid ELF header", result.out)
        self.refused(2, ["backends", "--backend-path", room("missing.so")], "No such file")

    def test_folders_of_any_bytes(self):
        folder = os.path.join(os.fsencode(ROOM), b"plug\xe9ns \xff")
        os.mkdir(folder)
        shutil.copy(SO, os.path.join(folder, b"fak-backend-other.so"))
        env = environment(FAK_PLUGIN_PATH=os.fsdecode(folder))
        said = self.fine("backends", "--json", env=env).json
        self.assertIn("other", [b["name"] for b in said["backends"]])
        self.assertTrue(any("plug\ufffdns" in f["path"] for f in said["folders"]))
        self.assertIn("calls itself cpu-ref", self.fine("backends", "-v", env=env).out)

    def test_broken_files_do_no_harm(self):
        folder = tempfile.mkdtemp(dir=ROOM)
        for name, data in (("empty", b""), ("text", b"text\n" * 30), ("short", b"\x7fELF")):
            with open(os.path.join(folder, f"fak-backend-{name}.so"), "wb") as file:
                file.write(data)
        os.mkdir(os.path.join(folder, "fak-backend-folder.so"))
        os.symlink("nowhere", os.path.join(folder, "fak-backend-dangling.so"))
        env = environment(FAK_PLUGIN_PATH=folder)
        said = self.fine("-m", model("tiny-f32"), *self.RUN, env=env)
        self.assertIn("not empty: not named", said.err)
        states = {b["name"]: b for b in self.fine("backends", "--json", env=env).json["backends"]}
        for name in ("empty", "text", "short", "folder", "dangling"):
            self.assertEqual(states[name]["state"], "refused")
            self.assertIn(f"fak-backend-{name}.so", states[name]["why"])
            self.backend_refused(["--backend", name], f"fak-backend-{name}.so", env=env)


# ---- inspect and tokenize --------------------------------------------------------------------------


def text(data):
    data = data if isinstance(data, bytes) else data.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(values, tensors=()):
    """A container; values: (key, type, packed), tensors: names of one F32 each."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, kind, packed in values:
        head += text(key) + struct.pack("<I", kind) + packed
    for i, name in enumerate(tensors):
        head += text(name) + struct.pack("<IQIQ", 1, 1, 0, 32 * i)
    return head + bytes(-len(head) % 32) + b"\0\0\x80\x3f".ljust(32, b"\0") * len(tensors)


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
        path = room("other.gguf", gguf([
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
        empty = room("nothing.gguf", gguf([]))
        self.assertIn("metadata: 0 keys\ntensors: 0\n", self.fine("inspect", empty).out)

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

        def container(infos):
            head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), 0) + b"".join(infos)
            return head + bytes(-len(head) % 32) + ones * 8

        vocabulary = [("general.architecture", 8, text("llama")),
                      ("tokenizer.ggml.model", 8, text("gpt2"))]
        for name, data, keys, tensors in (
            ("nothing", gguf([]), 0, 0),
            ("keys", gguf(every), len(every), 0),
            ("tensors", gguf([], ["one", "two"]), 0, 2),
            ("vocabulary", gguf(vocabulary), 2, 0),
            ("number", gguf([("general.architecture", 4, bytes(4))]), 1, 0),
            ("empty", gguf([("general.architecture", 8, text(""))]), 1, 0),
            ("cut", gguf([("general.architecture", 8, text(b"llama\0x"))]), 1, 0),
            ("scalar", container([tensor("s", [], 0)]), 0, 1),
            ("unknown", container([tensor("u", [3, 5], 199)]), 0, 1),
            ("four", container([tensor("f", [1, 2, 1, 2], 0)]), 0, 1),
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

    def test_strings_of_strangers(self):
        """What a file says does not reach the terminal as control characters, nor half a letter."""
        values = [("general.architecture", 8, text("x")),
                  ("long", 8, text("\u00e9" * 200)), ("longer", 8, text("a" + "\u00e9" * 200)),
                  ("bytes", 8, text(b"\xff\x00\x1b[31m")), ("k\x1b[31mey", 8, text("\x1b[31m"))]
        path = room("strange.gguf", gguf(values, ["te\x1b[31mn", "\u65e5"]))
        said = self.fine("inspect", path)
        self.assertNotIn("\x1b", said.out)  # said.out is decoded strictly
        self.assertIn("\u65e5", said.out)
        listed = self.fine("inspect", "--json", path).json
        self.assertIn("k\x1b[31mey", [m["key"] for m in listed["metadata"]])
        self.assertIn("\ufffd\0\x1b[31m", [m["value"] for m in listed["metadata"]])
        values = [(b"nul\0key", 8, text("x")), (b"latin\xe9", 8, text("y"))]
        path = room("stranger.gguf", gguf(values))
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
        path = room("numbers.gguf", gguf(values))
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


def main():
    global FAKRUN, PLUGINS, MODELS, SO
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    FAKRUN, PLUGINS, MODELS = (os.path.abspath(a) for a in sys.argv[1:4])
    SO = os.path.join(PLUGINS, "fak-backend-cpu-ref.so")
    for path in [FAKRUN, SO, model("tiny-untied")] + [model("tiny-" + d) for d in DTYPES]:
        if not os.path.exists(path):
            sys.exit(f"cli.py: there is no {path}")
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])


if __name__ == "__main__":
    main()
