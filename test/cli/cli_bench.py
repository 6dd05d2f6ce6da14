#!/usr/bin/env python3
"""fakrun bench, and what --require-reference refuses.  Usage: see common.py.

MODELS_DIR also has fak-backend-honest.so (class approx, takes everything), fak-backend-template.so
(matmuls only: the host does the attention), fak-backend-drift.so (wrong in its numbers alone) and
fak-backend-planted.so (wrong with options).
"""
import hashlib
import json
import os
import re
import signal
import subprocess
import time

from common import (DTYPES, FAKRUN, MODELS, PROGRAM, ROOM, SO, Case, contents, environment,
                    long_model, main, make, model, room)

HONEST = os.path.join(MODELS, "fak-backend-honest.so")
MINIMAL = os.path.join(MODELS, "..", "plugins", "fak-backend-template.so")
PLANTED = os.path.join(MODELS, "fak-backend-planted.so")
DRIFT = os.path.join(MODELS, "fak-backend-drift.so")
SMALL = ["--prefill", "4,16", "--decode", "5", "--batch", "1,3", "--reps", "3"]
NUMBER = r"\d+(\.\d+)?"


def sha256(path):
    return hashlib.sha256(contents(path)).hexdigest()


class Bench(Case):
    def bench(self, *args, name="tiny-f32", code=0, **more):
        """The evidence of a run."""
        path = room("evidence.json")
        if os.path.exists(path):
            os.unlink(path)
        result = self.run_it("bench", "-m", model(name), "--json", path, *SMALL, *args, **more)
        self.assertEqual(result.code, code, result.err)
        self.assertEqual(result.bytes == b"", code != 0)
        result.evidence = json.loads(contents(path))
        return result

    # ---- refused before work ----

    def test_refused_before_the_model_is_opened(self):
        missing = room("missing.gguf")
        self.refused(2, ["bench", "-m", missing, "--backend", "nosuch"], 'no backend "nosuch"')
        for backend in (["--backend", "cpu-ref"], ["--backend-path", SO], []):
            self.refused(2, ["bench", "-m", missing, *backend, "--require-non-reference"],
                         "backend cpu-ref is of class reference", "--require-non-reference")
        self.refused(2, ["bench", "-m", missing, "--backend-path", HONEST, "-o", "exact=1",
                         "--require-non-reference"], "backend honest is of class reference")
        self.refused(1, ["bench", "-m", missing, "--backend-path", HONEST,
                         "--require-non-reference"], "missing.gguf", "No such file")

    def test_a_device_with_little_memory(self):
        small = ["-m", model("tiny-f32"), "--backend-path", HONEST, "-o", "memory=10000"]
        for args in (["-p", "x", *small], ["bench", "--no-gate", *SMALL, *small]):
            self.refused(2, args, "takes", "10000 are free")
        takes = int(re.search(r"takes (\d+) bytes", self.refused(2, ["-p", "x", *small], "").err)[1])
        for less, tells in ((0, False), (64, True)):
            tight = [*small[:-1], f"memory={takes - less}"]
            said = self.fine("-p", "x", "-n", "2", *tight)
            self.assertEqual("64 rows a step, not 128: so the context fits" in said.err, tells, said.err)

    def test_the_line(self):
        self.refused(2, ["bench"], "no model is given")
        for args in (["--reps", "0"], ["--reps", "101"], ["--batch", "0"], ["--batch", "257"],
                     ["--prefill", "1,0"], ["--decode", "0"],
                     ["--decode", "1048577"], ["--probe-seconds", "0"],
                     ["--probe-seconds", "601"], ["--prefill", "1048577"]):
            self.refused(2, ["bench", "-m", model("tiny-f32"), *args], args[0], "it takes 1 to")
        self.refused(2, ["bench", "-m", model("tiny-f32"), "--prefill", "4;5"], "takes a number")
        self.refused(2, ["bench", "-m", model("tiny-f32"), "--json", ROOM], "is a folder")
        self.refused(2, ["bench", "-m", model("tiny-f32"), "x"], 'unexpected word "x"')
        shown = self.fine("bench", "--help").out
        for word in ("--require-non-reference", "--prefill", "examples:", "Exit codes:"):
            self.assertIn(word, shown)
        self.refused(2, ["nosuch"], "there are: backends, bench, bisect")

    def test_a_context_that_is_too_small(self):
        for args, *parts in ((["--prefill", "129"], "--prefill 129 needs", "129"),
                             (["--decode", "121"], "--decode 121 needs", "129"),
                             (["--batch", "200"], "--batch 200 needs", "200")):
            self.refused(2, ["bench", "-m", model("tiny-f32"), *SMALL, *args], *parts,
                         "tiny-f32.gguf", "takes 128")
        self.bench("--prefill", "128", "--decode", "120", "--batch", "128", "--reps", "1")

    def test_activations_that_the_device_has_not(self):
        for mode in ("q8", "f16"):
            self.refused(2, ["bench", "-m", model("tiny-q8_0"), "--backend-path", MINIMAL, *SMALL,
                             "--act", mode], f"{mode.upper()} activations")
        self.refused(2, ["bench", "-m", model("tiny-q8_0"), "--backend", "cpu-ref", *SMALL,
                         "--act", "f16"], "F16 activations")

    def test_a_short_model(self):
        """Fewer positions than usual are compared."""
        path = room("short.gguf")
        make(path, "--context", "20", "--dtype", "f32")
        said = self.bench("-m", path, "--backend-path", HONEST)
        self.assertEqual(said.evidence["gate"]["positions"], 20)
        self.assertEqual(said.evidence["model"]["file"], "short.gguf")

    # ---- the gate ----

    def test_the_reference_itself(self):
        for args in ([], ["--backend", "cpu-ref"], ["--backend", "cpu-ref", "-o", "fused=1"]):
            said = self.bench(*args).evidence
            self.assertEqual(said["gate"]["verdict"], "PASS")
            self.assertEqual(said["gate"]["positions"], 0)
            self.assertIn("compared with itself", said["gate"]["reason"])
            self.assertIsNone(said["gate"]["figures"])
            self.assertGreater(sum(said["gate"]["native"].values()), 100)
            self.assertEqual(said["plugin"]["file"], None)
            self.assertTrue(said["plugin"]["linked_in"])
            if FAKRUN == [PROGRAM]:
                self.assertEqual(said["plugin"]["sha256"], sha256(PROGRAM))

    def test_the_reference_as_a_file(self):
        for name in DTYPES:
            said = self.bench("--backend-path", SO, name="tiny-" + name).evidence
            self.assertEqual(said["gate"]["verdict"], "PASS")
            self.assertEqual(said["gate"]["positions"], 104)
            self.assertEqual(said["gate"]["bounds"], {"exact": True})
            self.assertEqual(said["gate"]["figures"]["differ"], 0)
            self.assertEqual(said["device"]["class"], "reference")
            self.assertEqual(said["plugin"]["sha256"], sha256(SO))

    def test_an_honest_device_is_accepted(self):
        for name, kv in (("tiny-f32", "f32"), ("tiny-f16", "f16"), ("tiny-q4_1", "bf16")):
            result = self.bench("--backend-path", HONEST, "--require-non-reference", "--kv", kv,
                                name=name)
            gate = result.evidence["gate"]
            self.assertEqual((gate["verdict"], result.evidence["verdict"]), ("PASS", "PASS"))
            self.assertEqual((gate["matmul_host"], gate["attention_host"], gate["host"]), (0, 0, {}))
            self.assertEqual((gate["positions"], gate["reason"]), (104, ""))
            self.assertGreater(gate["figures"]["differ"], 0)
            self.assertGreater(gate["figures"]["cosine"], gate["bounds"]["cosine"])
            self.assertGreater(gate["native"]["attention"], 0)
            self.assertIn("gate: PASS; 104 positions against the reference", result.out)

    def test_the_named_one_from_the_folder(self):
        said = self.bench("--backend", "honest", "--require-non-reference",
                          env=environment(FAK_PLUGIN_PATH=MODELS))
        self.assertEqual(said.evidence["plugin"]["name"], "honest")

    def test_attention_on_the_host_is_refused(self):
        for more in ([], ["--require-non-reference"]):
            said = self.bench("--backend-path", MINIMAL, *more, code=1)
            self.assertRegex(said.err.splitlines()[-1],
                             r"backend template left 0 matmuls and \d+ attentions to the host")
            self.assertEqual((said.evidence["verdict"], said.evidence["results"]), ("FAIL", []))
            gate = said.evidence["gate"]
            self.assertEqual(gate["matmul_host"], 0)
            self.assertEqual(gate["attention_host"], gate["host"]["attention"])
            self.assertGreater(gate["attention_host"], 0)
            self.assertIn(gate["reason"], said.err)
        self.refused(1, ["bench", "-m", model("tiny-f32"), "--backend-path", MINIMAL, *SMALL],
                     "attentions to the host")

    def test_a_matmul_on_the_host_is_refused(self):
        said = self.bench("--backend-path", HONEST, "-o", "leave=3", "-o", "fused=0", code=1)
        self.assertRegex(said.err.splitlines()[-1], r"left \d\d+ matmuls and 0 attentions")
        self.assertEqual(said.evidence["settings"], ["leave=3", "fused=0"])
        said = self.bench("--backend-path", HONEST, "-o", "leave=8", "-o", "fused=0")  # GLU may
        self.assertGreater(said.evidence["gate"]["host"]["glu"], 0)

    def test_wrong_numbers_are_refused(self):
        for fault, sentence in (("scale", r"norm ratio 1\.02 is farther from 1 than 0\.002"),
                                ("argmax", r"104 of 104 positions have another argmax"),
                                ("nan", r"104 of 104 positions have another argmax"),
                                ("bound", r"bound 0 \(cosine 0\.9, .* promises less than")):
            said = self.bench("--backend-path", DRIFT, "-o", "fault=" + fault, code=1)
            self.assertRegex(said.err.splitlines()[-1], sentence)
            self.assertEqual((said.evidence["verdict"], said.evidence["results"]), ("FAIL", []))
            self.assertRegex(said.evidence["gate"]["reason"], sentence)
        figures = self.bench("--backend-path", DRIFT, "-o", "fault=scale", code=1).evidence[
            "gate"]["figures"]
        self.assertGreater(figures["cosine"], 0.9999999)
        self.assertAlmostEqual(figures["norm_ratio"], 1.02, 5)
        self.bench("--backend-path", DRIFT, "--require-non-reference")

    # ---- what is told ----

    def test_the_evidence(self):
        said = self.bench("--backend-path", HONEST).evidence
        self.assertEqual(said["evidence"], "bench")
        self.assertEqual(said["schema"], 1)
        self.assertEqual(said["fak"]["abi"], [1, 0])
        self.assertRegex(said["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertTrue(said["command"].startswith("fakrun bench -m tiny-f32.gguf --json "), said)
        self.assertNotIn("/", said["command"])
        self.assertEqual(said["model"], {"file": "tiny-f32.gguf",
                                         "sha256": sha256(model("tiny-f32"))})
        self.assertEqual(said["plugin"]["file"], "fak-backend-honest.so")
        self.assertEqual(said["plugin"]["sha256"], sha256(HONEST))
        self.assertIn("FusedAttn", said["device"]["caps"])
        self.assertIn("act_f32", said["device"]["numerics"])
        self.assertGreater(said["seconds"], 0)
        self.assertEqual(set(said["machine"]), {"system", "cpu", "cores", "memory"})
        text = contents(room("evidence.json")).decode()
        self.assertNotIn(ROOM, text)
        self.assertNotIn(MODELS, text)
        self.assertEqual(list(said), sorted(said))
        self.assertTrue(text.startswith('{\n  "command": ') and text.endswith("\n}\n"), text)

    def test_the_results(self):
        said = self.bench("--backend-path", HONEST).evidence
        rows = said["results"]
        found = [(r["phase"], r.get("tokens"), r.get("batch"), r.get("what"), r["unit"])
                 for r in rows]
        self.assertEqual(found, [
            ("load", None, None, None, "s"), ("ttft", 8, None, "with load", "s"),
            ("ttft", 8, None, "loaded", "s"), ("prefill", 4, None, None, "tok/s"),
            ("prefill", 16, None, None, "tok/s"), ("decode", 5, None, None, "tok/s"),
            ("batch", 5, 1, None, "tok/s"), ("batch", 5, 3, None, "tok/s"),
            ("memory", None, None, "program", "bytes"),
            ("memory", None, None, "process peak", "bytes")])
        for row in rows:
            self.assertGreater(row["min"], 0)
            self.assertTrue(row["min"] <= row["median"] <= row["max"], row)
        self.assertGreater(rows[1]["median"], rows[0]["median"])  # it holds the load
        self.assertGreater(rows[9]["median"], rows[8]["median"])
        ops = said["ops_per_token"]
        self.assertEqual(ops["host"], {})
        self.assertEqual(ops["native"]["attention"], 2)  # layers
        plain = self.bench("--backend", "cpu-ref").evidence["ops_per_token"]
        self.assertEqual((plain["native"]["matmul"], plain["native"]["attention"]), (15, 2))

    def test_each_is_run_once_more_than_it_is_measured(self):
        """Steps of SMALL: load 3, first token 4, prefill 2*4, decode and a batch of one 1 + 4*5
        each, ops 2, a batch of three 3 + 4*5; the gate's are 3 for the prompt and 32."""
        said = self.bench("--backend", "cpu-ref").evidence
        self.assertEqual(said["gate"]["native"]["embed"], 3 + 4 + 8 + 21 + 21 + 2 + 23)
        said = self.bench("--backend-path", SO).evidence
        self.assertEqual(said["gate"]["native"]["embed"], 82 + 35)

    def test_speeds_are_of_tokens(self):
        for _ in range(5):  # the machine may be busy
            rows = self.bench("--prefill", "8", "--decode", "32", "--batch", "1,8").evidence[
                "results"]
            found = {(r["phase"], r.get("batch"), r.get("what")): r["median"] for r in rows}
            first, decode = found["ttft", None, "loaded"], found["decode", None, None]
            ratios = [found["prefill", None, None] * first / 8, found["batch", 1, None] / decode,
                      found["batch", 8, None] / decode]
            if all(0.4 < ratio < 2.5 for ratio in ratios):
                return
        self.fail(ratios)

    def test_kv_of_half_the_size(self):
        asked = [next(r["median"] for r in self.bench("--kv", kv).evidence["results"]
                      if r.get("what") == "program") for kv in ("f32", "f16")]
        self.assertGreater(asked[0], asked[1])

    def test_the_table(self):
        lines = self.bench("--backend-path", HONEST).out.splitlines()
        rows = [line for line in lines if line.endswith(("tok/s", " s"))]
        self.assertEqual(len(rows), 8)
        self.assertEqual(len({line.index("%") for line in rows}), 1, "columns")
        for line in rows:
            self.assertRegex(line, rf"^[a-z][a-z0-9, ]+ +({NUMBER} +){{3}}{NUMBER} %  (tok/)?s$")
        self.assertTrue(any(re.match(r"memory, process peak +\d+\.\d MB$", x) for x in lines))
        self.assertIn("ops a token: 14 native (7 matmul, 2 attention), 0 host (0 matmul, "
                      "0 attention)", lines)

    def test_json_on_standard_output(self):
        said = self.fine("bench", "-m", model("tiny-f32"), *SMALL, "--json", "-", "-q")
        self.assertEqual(json.loads(said.out)["verdict"], "PASS")
        self.assertEqual(said.err, "")

    def test_what_cannot_be_written(self):
        args = ["bench", "-m", model("tiny-f32"), *SMALL]
        with open("/dev/full", "wb") as full:
            result = self.run_it(*args, stdout=full)
            self.assertEqual(result.code, 1)
            self.assertIn("could not be written", result.err.splitlines()[-1])
            result = self.run_it(*args, "--json", "-", stdout=full)
            self.assertEqual(result.code, 1)
            self.assertIn("cannot be written", result.err.splitlines()[-1])
        result = self.run_it(*args, "--json", room("plain", b"x") + "/e.json")
        self.assertEqual(result.code, 1)
        self.assertIn("cannot be written", result.err.splitlines()[-1])

    def test_interrupted(self):
        """Before, and while a prompt that takes minutes is read."""
        for wait in (0, 1.5):
            args = ["bench", "-m", long_model(), "--prefill", "90000", "--json", room("no.json")]
            child = subprocess.Popen([*FAKRUN, *args], env=environment(), stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
            self.assertIn(b"backend cpu-ref", child.stderr.readline())
            time.sleep(wait)
            child.send_signal(signal.SIGINT)
            try:
                out, err = child.communicate(timeout=30)
            finally:
                child.kill()
            self.assertEqual(child.returncode, 130, err)
            self.assertEqual(out, b"")
            self.assertFalse(os.path.exists(room("no.json")))

    # ---- fakrun run ----

    def test_require_reference(self):
        args = ["-p", "Hello", "-n", "3", "--require-reference"]
        missing = room("missing.gguf")
        self.refused(2, ["-m", missing, *args, "--backend-path", HONEST],
                     "backend honest is of class approx", "class reference is required")
        for backend in ([], ["--backend", "cpu-ref"], ["--backend-path", HONEST, "-o", "exact=1"]):
            self.fine("-m", model("tiny-f32"), *args, *backend)
        self.fine("-m", model("tiny-f32"), *args[:-1], "--backend-path", HONEST)
        claim = [*args, "--backend-path", PLANTED, "-o", "class=reference"]  # its note claims less
        self.fine("-m", model("tiny-f32"), *claim)
        self.refused(2, ["-m", model("tiny-f32"), *claim, "-o", "fault=scaled", "-o", "layer=1"],
                     "with these options: it claims class reference, but op 17 (matmul, layer 1)")
        self.assertIn("--require-reference", self.fine("--help").out)


if __name__ == "__main__":
    main()
