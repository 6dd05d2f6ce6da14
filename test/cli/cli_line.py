#!/usr/bin/env python3
"""The command line: help, options, and what is wrong with them.  Usage: see common.py."""
import re
import subprocess

from common import FAKRUN, TIMEOUT, Case, Result, environment, main, model

NUMBERS = {"predict": (1, 1048576), "ctx": (1, 1048576), "top-k": (0, 1048576),
           "seed": (0, 4294967294), "logprobs": (0, 20), "probe-seconds": (1, 600)}
REALS = {"temp": (0, 100), "top-p": (0, 1), "min-p": (0, 1)}
BESIDE = {"top-p": ["--temp", "1"], "min-p": ["--temp", "1"]}  # what they need


class CommandLine(Case):
    def test_no_arguments(self):
        result = self.run_it_raw()
        self.assertEqual(result.code, 2)
        self.assertEqual(result.bytes, b"")  # nothing was asked for: it is no result
        self.assertIn("usage: fakrun", result.err)

    def run_it_raw(self, *args):
        done = subprocess.run([*FAKRUN, *args], env=environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=TIMEOUT, check=False)
        return Result(done.returncode, done.stdout, done.stderr)

    def test_help_has_examples(self):
        for command in ([], ["run"], ["backends"], ["bench"], ["bisect"], ["inspect"], ["tokenize"]):
            for flag in ("--help", "-h"):
                result = self.fine(*command, flag)
                self.assertEqual(result.err, "")
                self.assertTrue(result.out.startswith("usage: fakrun"))
                examples = result.out.partition("\nexamples:\n")[2]
                self.assertIn("  fakrun", examples or "none")
                self.assertIn("--help", result.out)
                for line in result.out.splitlines():
                    self.assertLessEqual(len(line), 100)
        for word in ("backends", "bench", "bisect", "inspect", "tokenize"):
            self.assertIn(word, self.fine("--help").out)

    def test_help_beside_errors(self):
        self.assertIn("usage:", self.fine("-m", "missing", "--help").out)

    def test_unknown_command(self):
        self.refused(2, ["frobnicate"], "frobnicate", "backends", "bench", "bisect", "inspect",
                     "tokenize")
        self.refused(2, ["Inspect", model("tiny-f32")], "Inspect")
        self.refused(2, [""], "backends")

    def test_unknown_option(self):
        for command in ([], ["backends"], ["bench"], ["bisect"], ["inspect"], ["tokenize"]):
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

    def test_whole_numbers(self):
        for name, (low, high) in NUMBERS.items():
            args = ["-m", model("tiny-f32"), "-p", "x", "--json", "--temp", "1"]
            for wrong in (low - 1, high + 1, -2**31, 2**32, 2**32 + low, 2**64, low - 2**64):
                self.refused(2, [*args, f"--{name}={wrong}"], f"--{name} is {wrong};",
                             f"takes {low} to {high}")
            for wrong in ("abc", "", "1x", "1.5", "1e3", "0x10", "--", "nan"):
                self.refused(2, [*args, f"--{name}", wrong], f"--{name} takes a number",
                             f'"{wrong}"')
            self.fine(*args, f"--{name}", str(low))
            if name != "ctx":  # its highest is more than the model has
                self.fine(*args, f"--{name}", str(high))

    def test_real_numbers(self):
        for name, (low, high) in REALS.items():
            args = ["-m", model("tiny-f32"), "-p", "x", "-n", "2", *BESIDE.get(name, [])]
            for wrong in (f"{low - 1}", "-1e-6", f"{high}.001", f"{high + 1}", "1e9", "1e99",
                          "-1e99", "inf", "-inf", "nan", "-nan"):
                self.refused(2, [*args, f"--{name}", wrong], f"--{name} is {wrong};",
                             f"takes {low} to {high}")
            for wrong in ("hot", "", "0.5x", "0,5", "1 2", "."):
                self.refused(2, [*args, f"--{name}", wrong], f"--{name} takes a number",
                             f'"{wrong}"')
            for right in (str(low), str(high), "0.5", ".5", "5e-1", "1e-30"):
                self.fine(*args, f"--{name}", right)

    def test_every_number_is_tested(self):
        for command in ([], ["backends"], ["bench"], ["bisect"], ["inspect"], ["tokenize"]):
            help_text = self.fine(*command, "--help").out
            numbers = set(re.findall(r"^ .*--([a-z-]+) [A-Z] ", help_text, re.M))
            want = {"run": set(NUMBERS) | set(REALS), "inspect": {"ctx"},
                    "backends": {"probe-seconds"}, "bench": {"decode", "reps", "probe-seconds"},
                    "bisect": {"steps", "rows", "ctx", "probe-seconds"}}
            self.assertEqual(numbers, want.get(command[0] if command else "run", set()), command)
        for wrong in ("0", "-1", "1048577"):
            self.refused(2, ["inspect", model("tiny-f32"), "--ctx", wrong], "takes 1 to 1048576")
        self.refused(2, ["inspect", model("tiny-f32"), "--ctx", "129"], "129", "128")

    def test_options_that_need_others(self):
        args = ["-m", model("tiny-f32"), "-p", "x"]
        for name in ("top-k", "top-p", "min-p"):
            self.refused(2, [*args, f"--{name}", "1"], f"--{name} needs --temp")
            self.fine(*args, f"--{name}", "1", "--temp", "0")
        self.refused(2, [*args, "--logprobs", "1"], "--logprobs needs --json")
        self.fine(*args, "--seed", "1")

    def test_choices(self):
        for wrong in ("q3_k", "Q4_K", "F32", "", "f", "f32|f16"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--dtype", wrong], "--dtype",
                         f'"{wrong}"', "f32")
        for wrong in ("q8_0", "F16", "", "f32|f16", "file"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--kv", wrong], "--kv",
                         f'"{wrong}"', "f32|f16|bf16")
        for wrong in ("f16", "q8|f32", "q"):
            self.refused(2, ["-m", model("tiny-f32"), "-p", "x", "--act", wrong], "--act",
                         f'"{wrong}"', "q8|f32")


if __name__ == "__main__":
    main()
