#!/usr/bin/env python3
"""fakrun bench when only speed is wanted: --no-gate, --phase, --depth.  Usage: see common.py."""
import json

from common import SO, Case, contents, main, model, room

SMALL = ["--prefill", "4,16", "--decode", "5", "--batch", "1,3", "--reps", "3"]


class Speed(Case):
    def bench(self, *args, code=0):
        path = room("speed.json", b"")
        result = self.run_it("bench", "-m", model("tiny-f32"), "--json", path, *SMALL, *args)
        self.assertEqual(result.code, code, result.err)
        result.evidence = json.loads(contents(path))
        return result

    def rows(self, *args):
        return [(r["phase"], r.get("tokens"), r.get("batch"), r.get("depth"))
                for r in self.bench(*args).evidence["results"] if r["phase"] != "memory"]

    def steps(self, *args):
        """That the device ran, of any number of rows."""
        return self.bench("--no-gate", *args).evidence["gate"]["native"]["embed"]

    def test_no_gate_is_no_pass(self):
        for backend in ([], ["--backend-path", SO]):
            result = self.bench("--no-gate", *backend)
            gate = result.evidence["gate"]
            self.assertEqual((gate["verdict"], result.evidence["verdict"]), ("ABSTAIN", "ABSTAIN"))
            self.assertEqual((gate["reason"], gate["positions"]), ("not run: --no-gate", 0))
            self.assertIsNone(gate["figures"])
            self.assertEqual(result.out.splitlines()[0], "gate: not run: --no-gate")
            self.assertNotIn("PASS", result.out + contents(room("speed.json")).decode())
        self.assertEqual(self.bench("--backend-path", SO).evidence["verdict"], "PASS")

    def test_no_gate_excuses_no_reference(self):
        self.refused(2, ["bench", "-m", model("tiny-f32"), "--no-gate", "--require-non-reference",
                         "--backend", "cpu-ref"], "class reference")

    def test_one_phase(self):
        load = [("load", None, None, None), ("ttft", 8, None, None), ("ttft", 8, None, None)]
        prefill = [("prefill", 4, None, None), ("prefill", 16, None, None)]
        decode, batch = [("decode", 5, None, 8)], [("batch", 5, 1, 8), ("batch", 5, 3, 8)]
        self.assertEqual(self.rows("--no-gate"), load + prefill + decode + batch)
        for phase, rows in (("load", load), ("prefill", prefill), ("decode", decode),
                            ("batch", batch)):
            self.assertEqual(self.rows("--no-gate", "--phase", phase), rows)
            ops = self.bench("--phase", phase).evidence["ops_per_token"]["native"]
            self.assertEqual((ops["matmul"], ops["attention"]), (15, 2))
        self.refused(2, ["bench", "-m", model("tiny-f32"), "--phase", "x"], '--phase is "x"',
                     "load|")

    def test_contexts(self):
        self.assertEqual(self.rows("--no-gate", "--phase", "decode", "--depth", "0,7,120"),
                         [("decode", 5, None, depth) for depth in (0, 7, 120)])
        self.assertEqual(self.rows("--phase", "batch", "--depth", "0,7"),
                         [("batch", 5, 1, 0), ("batch", 5, 3, 0)])
        self.assertIn("decode 5 after 120 ", self.bench("--depth", "0,120").out)
        for args, *parts in ((["--depth", "124"], "--depth 124 needs a context of 129"),
                             (["--decode", "121"], "--decode 121 needs a context of 129"),
                             (["--depth", "x"], "--depth")):
            self.refused(2, ["bench", "-m", model("tiny-f32"), *SMALL, *args], *parts)

    def test_steps(self):
        """Runs are 4, one without a clock; a context is fed once, in one step here; ops need 2."""
        decode = ["--phase", "decode", "--depth"]
        self.assertEqual(self.steps(*decode, "0"), 4 * 5 + 2)
        self.assertEqual(self.steps(*decode, "9"), 1 + 4 * 5 + 2)
        self.assertEqual(self.steps(*decode, "0,9"), 4 * 5 + 1 + 4 * 5 + 2)
        batch = ["--phase", "batch", "--batch", "3", "--depth"]
        self.assertEqual(self.steps(*batch, "0"), 4 * 5 + 2)
        self.assertEqual(self.steps(*batch, "9"), 3 + 4 * 5 + 2)
        self.assertEqual(self.steps("--phase", "prefill"), 2 * 4 + 2)
        self.assertEqual(self.steps("--phase", "load"), 3 + 4 + 2)

    def test_smallest(self):
        for phase in ("load", "prefill", "decode", "batch"):
            self.assertTrue(self.rows("--no-gate", "--phase", phase, "--prefill", "1", "--decode",
                                      "1", "--depth", "0", "--batch", "1", "--reps", "1"))


if __name__ == "__main__":
    main()
