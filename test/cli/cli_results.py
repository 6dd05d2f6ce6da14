#!/usr/bin/env python3
"""What generating prints: text, JSON, drawn ids, log-probabilities.  Usage: see common.py."""
import codecs
import importlib.machinery
import importlib.util
import math
import os
import re
import subprocess
import sys
import unittest

from common import (DTYPES, KEYS, MAKE_MODEL, ROOM, SO, Case, environment, main, model, room,
                    without_room)


def comma_locale():
    """LOCPATH for a locale with a decimal comma, compiled here: none need be installed."""
    folder = os.path.join(ROOM, "locales")
    if not os.path.exists(folder):
        os.mkdir(folder)
        try:
            subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", folder + "/de_DE.UTF-8"],
                           check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise unittest.SkipTest("localedef cannot make de_DE (Debian: locales)") from error
        point = "from locale import *; setlocale(LC_ALL, ''); print(localeconv()['decimal_point'])"
        said = subprocess.run([sys.executable, "-c", point], check=True, capture_output=True,
                              env=environment(LOCPATH=folder, LC_ALL="de_DE.UTF-8"))
        assert said.stdout == b",\n", said.stdout
    return folder


def token_bytes():
    """The bytes of each token of a tiny model."""
    loader = importlib.machinery.SourceFileLoader("make_model", MAKE_MODEL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_model", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    tokens, _ = module.make_vocabulary()
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    back = {ord(t): b for t, b in zip(module.byte_tokens(),
                                      plain + [b for b in range(256) if b not in plain])}
    return [t.encode() if t.startswith("<|") else bytes(back[ord(c)] for c in t) for t in tokens]


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
        folder = comma_locale()
        commands = (["-m", model("tiny-f32"), "-p", "Hello", "-n", "8"],
                    ["inspect", model("tiny-f32")], ["inspect", "--json", model("tiny-f32")],
                    ["inspect", "--plan", model("tiny-f32")], ["backends", "--json"],
                    ["--temp", "0.5", "--top-p", "0.9", "--min-p", ".01", "--seed", "3",
                     "-m", model("tiny-f32"), "-p", "Hello", "-n", "8"])
        for args in commands:
            plain = self.fine(*args)
            for locale in ("de_DE.UTF-8", "C", "POSIX", "nonsense", ""):
                env = environment(LOCPATH=folder, LC_ALL=locale, LANG=locale)
                self.assertEqual(without_room(self.fine(*args, env=env).bytes),
                                 without_room(plain.bytes))
            empty = {"PATH": "/nonexistent"}  # neither LANG nor HOME
            self.assertEqual(without_room(self.fine(*args, env=empty).bytes),
                             without_room(plain.bytes))
        said = self.fine("-m", model("tiny-f32"), "-p", "Hello", "--json", "--logprobs", "1",
                         env=environment(LOCPATH=folder, LC_ALL="de_DE.UTF-8")).json
        self.assertIsInstance(said["timing"]["load_s"], float)
        self.assertIsInstance(said["logprobs"][0]["logprob"], float)

    def test_text_is_the_bytes_of_the_ids(self):
        """Random ids cut UTF-8 in every way; what is cut at the end is shown once, as U+FFFD."""
        tokens = token_bytes()
        held = cut = letters = 0
        for seed in range(60):
            args = ["-m", model("tiny-f32"), "-p", "Hello", "-n", str(40 + seed), "--ignore-eos",
                    "--temp", "3", "--seed", str(seed)]
            said = self.fine(*args, "--json").json
            data = b"".join(tokens[i] for i in said["ids"] if i > 2)
            text = data.decode("utf-8", "replace")
            self.assertEqual(said["text"], text)
            self.assertEqual(self.fine(*args).bytes, text.encode() + b"\n")
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            decoder.decode(data)
            held += decoder.getstate()[0] != b""
            cut += "\ufffd" in text
            letters += any(c > "\x7f" and c != "\ufffd" for c in text)
        print(f"{held} texts end within a letter, {cut} have broken ones, {letters} whole ones")
        self.assertGreater(held, 5)
        self.assertGreater(cut, 5)
        self.assertGreater(letters, 5)


class Sampling(Case):
    DRAW = ["-p", "Hello", "-n", "20", "--temp", "0.9"]

    def test_a_seed_is_a_text(self):
        said = self.generate(*self.DRAW, "--seed", "7")
        self.assertEqual(set(said), KEYS | {"seed"})
        self.assertEqual(said["seed"], 7)
        for args in ([], ["-o", "fused=1"], ["--backend-path", SO], ["--ctx", "64"], ["-v"],
                     ["--logprobs", "2"], ["--top-k", "0"], ["--top-p", "1"], ["--min-p", "0"]):
            other = self.generate(*self.DRAW, "--seed", "7", *args)
            self.assertEqual((other["ids"], other["text"]), (said["ids"], said["text"]), args)
        shown = self.fine("-m", model("tiny-f32"), "--ignore-eos", *self.DRAW, "--seed", "7")
        self.assertEqual(shown.bytes, said["text"].encode() + b"\n")
        for args in (["--seed", "8"], ["--seed", "4294967294"], ["--seed", "7", "--top-k", "5"],
                     ["--seed", "7", "--temp", "2"]):
            self.assertNotEqual(self.generate(*self.DRAW, *args)["ids"], said["ids"], args)

    def test_a_run_can_be_repeated(self):
        first, second = (self.generate(*self.DRAW) for _ in range(2))
        self.assertNotEqual(first["seed"], second["seed"])
        again = self.generate(*self.DRAW, "--seed", str(first["seed"]))
        self.assertEqual(again["ids"], first["ids"])
        told = self.fine("-m", model("tiny-f32"), *self.DRAW, "--ignore-eos", "-v")
        seed = re.search(r"^fakrun: seed (\d+)$", told.err, re.M)[1]
        self.assertEqual(self.fine("-m", model("tiny-f32"), *self.DRAW, "--ignore-eos", "--seed",
                                   seed).bytes, told.bytes)

    def test_greedy(self):
        greedy = self.generate("-p", "Hello", "-n", "20")
        for args in (["--temp", "0"], ["--temp", "-0"], ["--seed", "3"],
                     ["--temp", "0", "--top-k", "5", "--top-p", ".5", "--min-p", "1"],
                     ["--temp", "0", "--seed", "3"], ["--temp", "2", "--top-k", "1"],
                     ["--temp", "2", "--top-p", "0"], ["--temp", "2", "--top-p", "1e-9"],
                     ["--temp", "2", "--min-p", "1"], ["--temp", "1e-9"]):
            said = self.generate("-p", "Hello", "-n", "20", *args)
            self.assertEqual(said["ids"], greedy["ids"], args)
            self.assertEqual("seed" in said, args[:2] in (["--temp", "2"], ["--temp", "1e-9"]))
        self.assertNotIn("seed", self.fine("-m", model("tiny-f32"), "-p", "a", "-v").err)

    def test_logprobs(self):
        plain = self.generate("-p", "Hello", "-n", "12")
        for count in (0, 1, 5, 20):
            for args in ([], ["--temp", "2", "--seed", "1"]):
                said = self.generate("-p", "Hello", "-n", "12", "--logprobs", str(count), *args)
                self.assertEqual(set(said) - {"seed"}, KEYS | {"logprobs"})
                if not args:
                    self.assertEqual(said["ids"], plain["ids"])
                self.assertEqual([row["id"] for row in said["logprobs"]], said["ids"])
                for row in said["logprobs"]:
                    self.assertEqual(set(row), {"id", "logprob", "top"})
                    self.assertEqual(len(row["top"]), count)
                    values = [t["logprob"] for t in row["top"]]
                    self.assertEqual(values, sorted(values, reverse=True))
                    self.assertLessEqual(sum(map(math.exp, values)), 1 + 1e-6)
                    best = {t["id"]: t["logprob"] for t in row["top"]}
                    self.assertEqual(best.get(row["id"], row["logprob"]), row["logprob"])
                    if count and not args:
                        self.assertEqual(row["top"][0]["id"], row["id"])
        self.assertNotIn("logprobs", plain)

    def test_logprobs_of_the_end(self):
        for seed in range(200):  # until one ends by itself: the end has a row too
            said = self.fine("-m", model("tiny-f32"), "-p", "Hello", "-n", "100", "--json",
                             "--temp", "2", "--seed", str(seed), "--logprobs", "0").json
            self.assertEqual([row["id"] for row in said["logprobs"]], said["ids"])
            if said["finish"] == "eos":
                return
        self.fail("no text ended")

    def test_kv(self):
        plain = self.generate("-p", "Hello the", "-n", "30", "--logprobs", "0")
        self.assertEqual(self.generate("-p", "Hello the", "-n", "30", "--kv", "f32", "--logprobs",
                                       "0")["logprobs"], plain["logprobs"])
        seen = [plain["logprobs"]]
        for kind in ("f16", "bf16"):
            said = self.generate("-p", "Hello the", "-n", "30", "--kv", kind, "--logprobs", "0")
            self.assertEqual(set(said), KEYS | {"logprobs"})
            self.assertNotIn(said["logprobs"], seen)
            first, before = said["logprobs"][0], plain["logprobs"][0]
            self.assertLess(abs(first["logprob"] - before["logprob"]), 0.1)
            seen.append(said["logprobs"])


if __name__ == "__main__":
    main()
