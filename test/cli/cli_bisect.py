#!/usr/bin/env python3
"""fakrun bisect: planted faults named right, right devices passed, wrong ones told.

usage: cli_bisect.py FAKRUN PLUGINS_DIR MODELS_DIR WRONG_DIR; the rest as in common.py.
MODELS_DIR has the backends planted, planted-blind and honest too.
"""
import os
import re
import signal
import subprocess
import sys
import time

WRONG = os.path.abspath(sys.argv.pop(4))
# pylint: disable=wrong-import-position
from common import (FAKRUN, HERE, MODELS, Case, environment, long_model, main, model, room)

LAYER = 1  # of the three of tiny-untied
# the tensors that are to be named, where the op has any
WEIGHTS = {"matmul": ["blk.1.attn_q.weight"], "rmsnorm": ["blk.1.attn_norm.weight"],
           "rope": ["rope"], "kv_append": ["rope"], "embed": ["token_embd.weight"]}


def table():
    """(fault, op, layered, multi) of each row of planted.h."""
    with open(os.path.join(HERE, "..", "mock", "planted.h"), encoding="utf-8") as file:
        text = re.sub(r"\\\n\s*", "", file.read())
    rows = re.findall(r'PLANTED\(\w+, "([^"]+)", (\w+), ([01]), ([01]),', text)
    return [(name, op.lower(), layered == "1", multi == "1") for name, op, layered, multi in rows]


def plugin(name, folder=MODELS):
    return ["--backend-path", os.path.join(folder, f"fak-backend-{name}.so")]


def settings(**options):
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


class Bisect(Case):
    def bisect(self, code, *args, name="tiny-untied", **more):
        result = self.run_it("bisect", "-q", "-m", model(name), *args, **more)
        self.assertEqual(result.code, code, f"{args}\n{result.out}\n{result.err}")
        if code != 2:
            self.assertEqual(result.err, "")
            self.assertTrue(result.out.endswith("\n"))
        return result

    def planted(self, *args, code=1, blind=False, **options):
        backend = plugin("planted-blind" if blind else "planted")
        return self.bisect(code, *backend, *settings(**options), *args)


class Planted(Bisect):
    def test_the_table(self):
        self.assertGreaterEqual(len(table()), 20)
        self.assertGreaterEqual(len({op for _, op, _, _ in table()}), 10)

    def test_every_fault_is_named(self):
        named = 0
        for fault, op, layered, multi in table():
            if fault == "argmax-last":  # needs a model with ties: test_lockstep has one
                continue
            claims = "reference" if fault == "reversed" else "approx"
            options = {"fault": fault, "layer": LAYER, "class": claims}
            with self.subTest(fault=fault):
                said = self.planted("--json", **options).json
                part = said["part"]
                self.assertTrue(said["parted"])
                self.assertEqual(part["id"], op)
                self.assertEqual(part["layer"], LAYER if layered else None)
                if op in WEIGHTS:
                    self.assertEqual(part["weights"], WEIGHTS[op])
                if multi:
                    self.assertGreater(part["rows"], 1)
                self.assertNotEqual(part["want"], part["got"])
                self.assertEqual(said["backend"]["class"], claims)
                self.assertEqual("bound" in part, claims == "approx")
                text = self.planted(**options).out
                where = f"layer {LAYER}" if layered else "outside layers"
                self.assertIn(f"\nop        {part['op']}, {op}, {where}\n", text)
                self.assertIn(f"\nshapes    {part['shapes']}\n", text)
                self.assertIn(f" in step {part['step']} ({part['phase']}, positions ", text)
                self.assertRegex(text, r"\nworst     row \d+ \(position \d+\)")
                self.assertNotIn("no op parted", text)
                named += 1
        self.assertGreaterEqual(named, 20)

    def test_in_fused_ops(self):
        for fault, holder in (("scaled", "norm_matmul"), ("gelu", "ffn"),
                              ("key-sign", "rope_append")):
            said = self.planted("--json", fault=fault, layer=2, fused=1).json["part"]
            self.assertEqual((said["id"], said["layer"]), (holder, 2))
            self.assertIn("fused", said["note"])
            text = self.planted(fault=fault, layer=2, fused=1).out
            self.assertIn(f"{holder}, layer 2 (fused: ", text)
            self.assertIn("\nnote      it is a fused op: ", text)

    def test_which_matmul(self):
        names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        for nth, name in enumerate(names):
            part = self.planted("--json", fault="dropped-tail", layer=2, nth=nth).json["part"]
            self.assertEqual(part["weights"], [f"blk.2.{name}.weight"])
            self.assertIn("want", part)

    def test_step_and_phase(self):
        prompt = len(self.fine("tokenize", "--json", "-m", model("tiny-untied"), "-p",
                               "Hello the world").json["ids"])
        for first in range(prompt + 4):
            part = self.planted("--json", "-p", "Hello the world", "--rows", "4", "-n", "4",
                                fault="lost-kv", layer=LAYER, **{"from": first}).json["part"]
            self.assertEqual(part["phase"], "prefill" if first < prompt else "decode")
            self.assertLessEqual(part["first"], first)
            self.assertLess(first, part["first"] + part["rows"])
            if first >= prompt:
                steps = (prompt - 1 + 3) // 4 + 1  # the text's last id goes alone
                self.assertEqual((part["step"], part["rows"]), (steps + first - prompt, 1))
        self.planted("-p", "Hello the world", "-n", "4", code=0, fault="lost-kv",
                     **{"from": prompt + 4})

    def test_without_kv_read(self):
        part = self.planted("--json", blind=True, fault="swapped-kv", layer=LAYER).json["part"]
        self.assertEqual((part["id"], part["layer"]), ("attention", LAYER))
        self.assertIn("no kv_read", part["note"])
        self.assertIn("\nnote      the backend has no kv_read",
                      self.planted(blind=True, fault="swapped-kv", layer=LAYER).out)
        fine = self.planted("--json", blind=True, code=0).json
        self.assertEqual(fine["unseen"], fine["steps"] * 3)
        self.assertIn("not seen: the backend has no kv_read", self.planted(blind=True, code=0).out)

    def test_a_nan_is_told(self):
        part = self.planted("--json", fault="nan", layer=LAYER).json["part"]
        self.assertEqual((part["got"], part["col"]), ("nan", 32))
        self.assertEqual(part["figures"]["rel_l2"], "inf")
        self.assertIn("column 32: nan where the reference gives ",
                      self.planted(fault="nan", layer=LAYER).out)

    def test_act_and_dtype_and_kv(self):
        for dtype in ("f32", "q8_0", "q4_1", "bf16"):
            for kv in ("f32", "f16", "bf16"):
                for act in ("q8", "f32"):
                    how = ["--dtype", dtype, "--kv", kv, "--act", act, "-n", "4"]
                    part = self.planted("--json", *how, fault="swapped-kv",
                                        layer=LAYER).json["part"]
                    self.assertEqual((part["id"], part["layer"]), ("kv_append", LAYER))
                    part = self.planted("--json", *how, fault="scaled", layer=LAYER).json["part"]
                    self.assertEqual((part["id"], part["layer"]), ("matmul", LAYER))
                    coarse = act == "q8" and dtype.startswith("q")
                    self.assertIn("Q8" if coarse else "F32", part["bound"]["mode"])
                    self.planted(*how, code=0)


class Right(Bisect):
    def test_right_devices_pass(self):
        for backend, options, exact in (
                (["--backend", "cpu-ref"], {}, True),
                (["--backend", "cpu-ref"], {"fused": 1}, True),
                (plugin("planted"), {"class": "reference"}, True),
                (plugin("honest"), {"exact": 1}, True),
                (plugin("honest"), {"exact": 1, "eager": 1, "fused": 0}, True),
                (plugin("honest"), {}, False),
                (plugin("honest"), {"eager": 1, "fused": 0}, False)):
            args = [*backend, *settings(**options)]
            said = self.bisect(0, *args, "--json").json
            self.assertFalse(said["parted"])
            self.assertIsNone(said["part"])
            self.assertEqual(said["worst"]["differ"] == 0, exact)
            self.assertGreater(said["ops"], 15 * said["steps"])
            text = self.bisect(0, *args).out
            told = f"no op parted in {said['steps']} steps, {said['ops']} ops compared"
            self.assertIn(told, text)
            self.assertIn("values are equal" if exact else "worst: relative L2 ", text)

    def test_ops_left_to_the_host_are_told(self):
        said = self.bisect(0, *plugin("honest"), *settings(leave=3, fused=0), "--json").json
        self.assertGreater(said["host"], 20 * said["steps"])
        text = self.bisect(0, *plugin("honest"), *settings(leave=3, fused=0)).out
        self.assertIn(f", {said['host']} left to the host's reference", text)

    def test_steps_rows_and_context(self):
        cpu = ["--backend", "cpu-ref", "--json", "-p", "Hello the world, and all of it"]
        ids = len(self.fine("tokenize", "--json", "-m", model("tiny-untied"), "-p",
                            cpu[-1]).json["ids"])
        for rows in (1, 2, 5, 64):
            for steps in (0, 1, 7):
                said = self.bisect(0, *cpu, "--rows", str(rows), "-n", str(steps)).json
                self.assertEqual(said["steps"], -(-(ids - 1) // rows) + 1 + steps)
        said = self.bisect(0, *cpu, "--ctx", str(ids + 3), "--rows", "1").json
        self.assertEqual(said["steps"], ids + 3)  # no more than there is room for
        self.assertEqual(self.bisect(0, *cpu[:3], "-p", "a", "-n", "0").json["steps"], 1)

    def test_text_from_a_file(self):
        path = room("bisect.txt", b"Hello from a file")
        a = self.bisect(0, "--backend", "cpu-ref", "-f", path, "--json")
        b = self.bisect(0, "--backend", "cpu-ref", "-p", "Hello from a file", "--json")
        c = self.bisect(0, "--backend", "cpu-ref", "-f", "-", "--json", stdin=b"Hello from a file")
        self.assertEqual(a.bytes, b.bytes)
        self.assertEqual(c.bytes, b.bytes)

    def test_the_line_about_the_backend(self):
        said = self.run_it("bisect", "-m", model("tiny-untied"), "--backend", "cpu-ref")
        self.assertIn("backend cpu-ref (reference; ", said.err)


class Wrong(Bisect):
    def test_a_claim_need_not_be_true(self):
        """Refused elsewhere, since its bits are wrong; here that is what is looked for."""
        for name, op in (("wrong-bit", "matmul"), ("class-liar", "glu"), ("nan-writer", "matmul")):
            backend = plugin(name, WRONG)
            self.refused(2, ["-m", model("tiny-untied"), "-p", "x", *backend],
                         "claims class reference")
            part = self.bisect(1, *backend, "--json").json["part"]
            self.assertEqual((part["id"], part["layer"], part["step"]), (op, 0, 0))
            self.assertNotIn("bound", part)

    def test_a_crash_stays_in_the_child(self):
        quiet = environment(ASAN_OPTIONS="handle_segv=0:handle_abort=0:handle_sigill=0")
        for name, told in (("op-sigsegv", "SIGSEGV"), ("op-abort", "SIGABRT"),
                           ("open-sigsegv", "SIGSEGV"), ("entry-exit-0", "status 0")):
            self.refused(2, ["bisect", "-m", model("tiny-f32"), *plugin(name, WRONG)], told,
                         env=quiet)

    def test_an_error_is_told(self):
        """Of an op that was taken, from the device and not from a difference."""
        said = self.run_it("bisect", "-q", "-m", model("tiny-f32"), *plugin("honest"),
                           *settings(**{"fail-submit": 9}))
        self.assertEqual((said.code, said.bytes), (1, b""))
        self.assertIn("honest", said.err)

    def test_refused_before_work(self):
        cpu = ["--backend", "cpu-ref"]
        untied = ["bisect", "-m", model("tiny-untied")]
        self.refused(2, ["bisect", *cpu], "-m")
        self.refused(2, untied, "--backend")
        self.refused(2, [*untied, "--backend", "nowhere"], "nowhere", "cpu-ref")
        self.refused(2, [*untied, *cpu, "-p", "a", "-f", "b"], "not with both")
        self.refused(2, [*untied, *cpu, "-p", ""], "empty")
        self.refused(2, [*untied, *cpu, "--ctx", "3"], "context is 3")
        self.refused(2, [*untied, *cpu, "--ctx", "129"], "129", "128")
        self.refused(2, [*untied, *cpu, "-o", "fused=2"], "fused")
        self.refused(2, [*untied, *plugin("planted"), "-o", "fault=none-such"], "fault")
        self.refused(1, ["bisect", "-m", room("gone.gguf"), *cpu], "gone.gguf")
        said = self.fine("bisect", "-m", model("tiny-f32"), "-q",
                         env=environment(FAK_BACKEND="cpu-ref"))
        self.assertIn("no op parted", said.out)

    def test_numbers(self):
        args = ["bisect", "-m", model("tiny-f32"), "--backend", "cpu-ref"]
        for name, low, high in (("steps", 0, 1048576), ("rows", 1, 4096)):
            for wrong in (low - 1, high + 1):
                self.refused(2, [*args, f"--{name}={wrong}"], f"takes {low} to {high}")
            self.refused(2, [*args, f"--{name}", "x"], "takes a number")

    def test_a_full_disk_is_told(self):
        for more in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                said = self.run_it("bisect", "-m", model("tiny-f32"), "--backend", "cpu-ref", *more,
                                   stdout=full)
            self.assertEqual(said.code, 1)
            self.assertIn("could not be written", said.err)

    def test_ctrl_c(self):
        args = [*FAKRUN, "bisect", "-q", "-m", long_model(), "--backend", "cpu-ref", "--ctx",
                "200000", "-n", "190000"]
        with subprocess.Popen(args, env=environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as child:
            time.sleep(2)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
        self.assertEqual((child.returncode, out, err), (130, b"", b""))


if __name__ == "__main__":
    main()
