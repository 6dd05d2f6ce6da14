#!/usr/bin/env python3
"""Proves that scripts/render-matrix shows what evidence shows, and catches each kind of lie.

Evidence of backends that do not exist, in small trees made for it.
"""
import copy
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts/render-matrix"
loader = importlib.machinery.SourceFileLoader("render_matrix", str(SCRIPT))
matrix = importlib.util.module_from_spec(importlib.util.spec_from_loader("render_matrix", loader))
loader.exec_module(matrix)

C_TEST = "static void test_it(void **state)\n{\n}\n\n    cmocka_unit_test(test_it),\n"
MACHINE = {"system": "Linux 6.1 x86_64", "cpu": "a CPU", "cores": 2, "memory": 16 << 30}
ASSUMPTION = {"name": "registry", "usual": "a list", "fence": "files",
              "where": [{"file": "core/search.c", "text": "refused here"}],
              "tests": [{"test": "it", "file": "test/test_it.c", "function": "test_it"}]}
LEDGER = {"evidence": "ledger", "schema": 1, "assumptions": [ASSUMPTION] * 8,
          "backends": [{"name": name, "runs_on": on, "what": name} for name, on in (
              ("floor", "cpu"), ("gpu", "device"), ("npu-sim", "simulation"), ("tin", "device"))]}
FENCE = {"evidence": "fence", "schema": 1, "date": "2026-11-30T05:20:00Z", "machine": MACHINE,
         "command": "fakrun --backend tin -m model.gguf -p Hello", "backend": "tin",
         "reason": "it needs tin", "exit": 2, "said": "fakrun: backend tin is fenced: it needs tin"}


def check_of(rung, name, verdict="PASS", detail="", reason=""):
    return {"rung": rung, "check": name, "detail": detail, "verdict": verdict, "reason": reason,
            "cases": 3, "figures": {}}


def run_of(evidence, backend="gpu", **device):
    return {"evidence": evidence, "schema": 1, "fak": {"version": "0.1.0", "abi": [1, 0]},
            "date": "2026-11-30T05:20:00Z", "machine": copy.deepcopy(MACHINE),
            "command": f"fakrun {evidence} fak-backend-{backend}.so",
            "plugin": {"name": backend, "version": "1.0", "vendor": "V", "sha256": "0a" * 32,
                       "file": f"fak-backend-{backend}.so", "linked_in": False},
            "device": {"index": 0, "id": "pci:1", "name": "card", "kind": "discrete", "tier": "",
                       "class": "approx", "caps": ["FusedAttn", "Async"],
                       "numerics": ["act_f32", "act_q8", "deterministic"],
                       "upload_dtypes": ["f32", "q8_0", "q4_0"], **device},
            "settings": [], "seed": 1, "excepted": [], "model": None, "verdict": "PASS",
            "seconds": 1.0}


def opcheck(backend="gpu", **device):
    e = run_of("opcheck", backend, **device)
    e["checks"] = [check_of("R0", "handshake"),
                   check_of("R1", "matmul", detail="f32"),
                   check_of("R1", "matmul", detail="q8_0, Q8 activations"),
                   check_of("R1", "matmul", "ABSTAIN", "q4_0, Q8 activations", "not taken"),
                   check_of("R2", "FusedAttn"), check_of("R2", "Async", "ABSTAIN", "", "no stats"),
                   check_of("R5", "model", "ABSTAIN"),
                   check_of("R1", "embed", detail="q8_0, F32 activations"),
                   check_of("R1", "attention, kv_append", detail="bf16 kv"),
                   check_of("R2", "UploadDtype", detail="q8_0"),
                   check_of("R3", "deterministic", detail="f32")]
    e["rungs"] = [{"rung": r, "verdict": v, "pass": p, "fail": 0, "abstain": a} for r, v, p, a in (
        ("R0", "PASS", 1, 0), ("R1", "PASS", 4, 1), ("R2", "PASS", 2, 1), ("R5", "ABSTAIN", 0, 1),
        ("R3", "PASS", 1, 0))]
    return e


def bench():
    gate = {"verdict": "PASS", "reason": "", "matmul_host": 0, "attention_host": 0}
    return {**run_of("bench"), "results": [], "gate": gate}


def fail(e, index, reason="wrong bits"):
    """e with the check of that index failed, and all that follows from it."""
    check = e["checks"][index]
    check.update(verdict="FAIL", reason=reason)
    for r in e["rungs"]:
        if r["rung"] == check["rung"]:
            r.update(verdict="FAIL", fail=1)
    e["verdict"] = "FAIL"
    return e


class Matrix(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        room = tempfile.TemporaryDirectory(prefix="fak-test-matrix-")
        self.addCleanup(room.cleanup)
        self.root = pathlib.Path(room.name)
        for folder in ("abi/evidence", "core", "test"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "core/search.c").write_text("refused here\n")
        (self.root / "test/test_it.c").write_text(C_TEST)
        (self.root / "test/meson.build").write_text("test('it')\n")
        self.page = self.root / "abi/SUPPORT.md"
        self.put("ledger", LEDGER)
        self.put("tin", FENCE)

    def put(self, name, e):
        (self.root / f"abi/evidence/{name}.json").write_text(json.dumps(e))

    def run_it(self, *args):
        return subprocess.run([sys.executable, SCRIPT, "--root", self.root, *args], check=False,
                              capture_output=True, text=True, timeout=60)

    def rows(self, **files):
        """{(backend, device, capability, rung): (state, file)} of a page made and checked."""
        for name, e in files.items():
            self.put(name, e)
        ledger, found, faults = matrix.read(self.root)
        self.assertEqual(faults, [])
        self.page.write_text(matrix.render(ledger, found))
        self.assertEqual(matrix.check(self.root), [])
        return {tuple(r[:4]): (r.state, r.file) for r in matrix.read_rows(self.page.read_text())}

    def states(self, e):
        """{capability or rung: state} of the backend of one file."""
        rows = self.rows(one=e)
        return {rung if cap == "whole rung" else cap: state
                for (backend, _, cap, rung), (state, _) in rows.items()
                if backend == e["plugin"]["name"]}

    def caught(self, *parts):
        """One of the sentences has all the parts."""
        faults = matrix.check(self.root)
        for sentence in faults:
            self.assertTrue(sentence.startswith("abi/"), faults)
            self.assertNotIn("\n", sentence)
        self.assertTrue(any(all(p in f for p in parts) for f in faults), f"{parts}: {faults}")

    # ---- what is shown

    def test_the_real_page(self):
        self.assertEqual(matrix.check(ROOT), [])

    def test_opcheck(self):
        rows = self.rows(one=opcheck(), two=bench())
        card = {key[2:]: value for key, value in rows.items() if key[0] == "gpu"}
        yes, no = ("WITNESSED", "one.json"), ("ASPIRED", "one.json")
        self.assertEqual(card, {
            ("opcheck", "all"): yes, ("whole rung", "R0"): yes, ("whole rung", "R1"): yes,
            ("whole rung", "R2"): yes, ("whole rung", "R3"): yes, ("whole rung", "R4"): no,
            ("real model", "R5"): no, ("whole rung", "R6"): no, ("FusedAttn", "R2"): yes,
            ("Async", "R2"): no, ("weights f32", "R1"): yes, ("weights q8_0", "R1"): yes,
            ("weights q4_0", "R1"): no, ("act_f32", "R1"): yes, ("act_q8", "R1"): yes,
            ("weights f32 kept so", "R2"): no, ("weights q8_0 kept so", "R2"): yes,
            ("weights q4_0 kept so", "R2"): no, ("deterministic", "R3"): yes,
            ("bench", "all"): ("WITNESSED", "two.json"),
            ("gate", "bench"): ("WITNESSED", "two.json")})
        self.assertEqual({k[1] for k in rows if k[0] == "gpu"}, {"card (discrete, approx)"})
        self.assertEqual(rows["tin", "-", "everything", "all"], ("FENCED", "tin.json"))
        self.assertEqual(rows["floor", "-", "everything", "all"], ("ASPIRED", "ledger.json"))

    def test_software_and_emulators_are_no_witness(self):
        for e, state in ((opcheck("gpu", kind="software"), "PROOF-PATH"),
                         (opcheck("floor", kind="software"), "WITNESSED"),  # it is a CPU's
                         (opcheck("npu-sim", kind="npu"), "PROOF-PATH"),
                         ({**opcheck("floor", kind="cpu"), "emulator": "qemu-s390x"}, "PROOF-PATH"),
                         (opcheck("floor", kind="cpu"), "WITNESSED")):
            states = self.states(e)
            self.assertEqual((states["opcheck"], states["R1"], states["weights f32"]), (state,) * 3)
            self.assertEqual(states["Async"], "ASPIRED")

    def test_nothing_comes_of_nothing(self):
        e = opcheck()
        e["checks"][1]["detail"] = "q8_0, F32 activations"  # the mode is no weight
        states = self.states(e)
        self.assertEqual(states["weights f32"], "ASPIRED")
        self.assertNotIn("weights f16", states)
        self.assertNotIn("weights bf16", states)  # that is kv
        self.assertEqual(states["act_f32"], "WITNESSED")
        e["checks"][7]["check"] = e["checks"][1]["check"] = "rmsnorm"  # an op without a matrix
        self.assertEqual(self.states(e)["act_f32"], "ASPIRED")
        e["checks"][10]["rung"] = "R2"  # whole steps show it
        self.assertEqual(self.states(e)["deterministic"], "ASPIRED")
        e["checks"][9]["rung"] = "R1"
        self.assertEqual(self.states(e)["weights q8_0 kept so"], "ASPIRED")
        e["checks"][4]["check"] = "FusedFFN"  # it does not claim that, and FusedAttn has no check
        states = self.states(e)
        self.assertEqual(states["FusedAttn"], "ASPIRED")
        self.assertNotIn("FusedFFN", states)
        e["checks"][4] = check_of("R1", "FusedAttn")  # on another rung
        self.assertEqual(self.states(e)["FusedAttn"], "ASPIRED")
        e["checks"][0]["verdict"] = "ABSTAIN"  # a rung of which nothing has passed
        self.assertEqual(self.states(e)["R0"], "ASPIRED")
        e = opcheck()
        e["rungs"][0]["pass"] = 0
        self.assertEqual(self.states(e)["R0"], "ASPIRED")
        self.assertEqual(self.states({**bench(), "gate": None})["gate"], "ASPIRED")

    def test_real_model(self):
        e = opcheck()
        e["checks"][6]["verdict"] = e["rungs"][3]["verdict"] = "PASS"
        e["rungs"][3]["pass"] = 1
        self.assertEqual(self.states(e)["real model"], "ASPIRED")  # of no model
        e["model"] = {"file": "m.gguf", "sha256": "0b" * 32}
        self.assertEqual(self.states(e)["real model"], "WITNESSED")

    def test_failures_stand(self):
        states = self.states(fail(opcheck(), 2))
        self.assertEqual([states[k] for k in ("opcheck", "R1", "weights q8_0", "act_q8")],
                         ["FAIL"] * 4)
        self.assertEqual([states[k] for k in ("R0", "weights f32", "FusedAttn")], ["WITNESSED"] * 3)
        self.assertIn("wrong bits", self.page.read_text())
        later = {**opcheck(), "date": "2026-12-01T00:00:00Z"}
        rows = self.rows(two=later)  # beside a PASS that is newer, too
        key = ("gpu", "card (discrete, approx)")
        self.assertEqual(rows[(*key, "weights q8_0", "R1")], ("FAIL", "one.json"))
        self.assertEqual(rows[(*key, "weights f32", "R1")], ("WITNESSED", "two.json"))
        self.assertEqual(self.states(fail(opcheck(), 5))["Async"], "FAIL")
        e = opcheck()
        e["checks"].append(check_of("R1", "embed", detail="q8_0"))  # one that passes is no excuse
        self.assertEqual(self.states(fail(e, 2))["weights q8_0"], "FAIL")

    def test_exceptions_are_listed(self):
        self.rows(one={**opcheck(), "excepted": [{"manner": "threads", "why": "the driver"},
                                                 {"manner": "open files", "why": "libcard"}]})
        self.assertIn("| threads: the driver; open files: libcard |", self.page.read_text())

    def test_devices_are_told_apart(self):
        rows = self.rows(one=opcheck(), two=opcheck("gpu", kind="software", name="a|b"))
        self.assertEqual(rows["gpu", "card (discrete, approx)", "whole rung", "R1"][0], "WITNESSED")
        self.assertEqual(rows["gpu", r"a\|b (software, approx)", "whole rung", "R1"],
                         ("PROOF-PATH", "two.json"))

    def test_exits(self):
        said = self.run_it("--check")
        self.assertEqual((said.returncode, said.stdout), (1, ""))
        self.assertIn("render-matrix: abi/SUPPORT.md: stale", said.stderr)
        for args in ((), ("--check",)):
            said = self.run_it(*args)
            self.assertEqual((said.returncode, said.stdout, said.stderr), (0, "", ""))
        before = self.page.read_text()
        self.put("one", {**opcheck(), "date": ""})
        self.put("two", bench())  # this would be a row
        for args in ((), ("--check",)):
            said = self.run_it(*args)
            self.assertEqual((said.returncode, said.stdout), (1, ""))
            self.assertIn("render-matrix: abi/evidence/one.json: it has no date", said.stderr)
        self.assertEqual(self.page.read_text(), before)  # nothing is made of what is no evidence
        self.assertEqual(self.run_it("--unknown").returncode, 2)

    # ---- lies in the page

    def test_stale(self):
        self.caught("SUPPORT.md: stale from line 1")  # there is none
        self.rows(one=opcheck())
        self.put("two", bench())
        self.caught("SUPPORT.md: stale from line", "run scripts/render-matrix")
        self.rows()
        text = self.page.read_text()
        for changed in (text + "\n", text.replace("WITNESSED | it", "WITNESSED | they"),
                        "".join(text.splitlines(True)[:-1]), ""):
            self.page.write_text(changed)
            self.caught("SUPPORT.md: stale from line")

    def edited(self, old, new):
        text = self.page.read_text()
        self.assertIn(old, text)
        self.page.write_text(text.replace(old, new))

    def test_rows_that_claim_more(self):
        e = opcheck("gpu", kind="software")
        for key, old in (("weights f32 | R1", "PROOF-PATH"), ("Async | R2", "ASPIRED"),
                         ("whole rung | R4", "ASPIRED"), ("weights q8_0 | R1", "FAIL")):
            self.rows(one=fail(copy.deepcopy(e), 2) if old == "FAIL" else e)
            self.edited(f"| {key} | {old} |", f"| {key} | WITNESSED |")
            self.caught(f"{key.replace(' | ', ', ')}: it says WITNESSED", f"one.json shows {old}")
            self.caught("stale")

    def test_rows_of_other_evidence(self):
        self.rows(one=opcheck())
        for new in ("| gpu | card (discrete, approx) | Zeal | R2 | WITNESSED | [one.json]"
                    "(evidence/one.json) |  |",
                    "| npu-sim | card (discrete, approx) | whole rung | R1 | WITNESSED | [one.json]"
                    "(evidence/one.json) |  |",
                    "| gpu | card 2 (discrete, approx) | whole rung | R1 | WITNESSED | [one.json]"
                    "(evidence/one.json) |  |",
                    "| gpu | card (discrete, approx) | whole rung | R1 | WITNESSED | [no.json]"
                    "(evidence/no.json) |  |",
                    "| floor | - | everything | all | FENCED | [ledger.json]"
                    "(evidence/ledger.json) |  |",
                    "| floor | - | everything | all | PROOF-PATH | word of mouth |  |"):
            self.rows()
            self.edited("\n## Evidence", new + "\n\n## Evidence")
            self.caught("shows ASPIRED", new.split(" | ")[2])

    # ---- lies in the evidence

    def refused(self, e, *parts):
        self.put("one", e)
        self.caught("abi/evidence/one.json: ", *parts)

    def test_what_every_evidence_has(self):
        for make in (opcheck, bench):
            for path, *parts in (("date", "no date"), ("command", "no command"),
                                 ("machine", "no machine.system", ), ("machine.cpu", "machine.cpu"),
                                 ("machine.cores", "machine.cores"),
                                 ("machine.memory", "machine.memory"),
                                 ("plugin.sha256", "no plugin.sha256"), ("plugin", "plugin.name"),
                                 ("plugin.version", "plugin.version"), ("device", "device.name"),
                                 ("device.kind", "device.kind"), ("fak", "fak.version"),
                                 ("device.class", "device.class"), ("verdict", "verdict"),
                                 ("schema", "schema 1"), ("evidence", "not evidence")):
                *outer, last = path.split(".")
                for empty in (None, "", "x" * (path == "date")):
                    e = make()
                    at = e[outer[0]] if outer else e
                    at.pop(last)
                    if empty is not None:
                        at[last] = empty
                    self.refused(e, *parts)
        for key, part in (("date", "no date"), ("command", "no command"), ("machine", "machine"),
                          ("said", "no said"), ("reason", "reason"), ("backend", "backend")):
            self.refused({k: v for k, v in FENCE.items() if k != key}, part)

    def test_wrong_fields(self):
        for path, value, part in (
            ("plugin.sha256", "0A" * 32, "64 hex digits"), ("plugin.sha256", "0a" * 31, "64 hex"),
            ("date", "2026-11-31T05:20:00Z", "no date"), ("date", "2026-11-30", "no date"),
            ("command", "fakrun bench x.so", "fakrun opcheck"), ("device.kind", "tpu", "none of"),
            ("plugin.name", "new", "lists no backend new"), ("emulator", "", "emulator"),
            ("command", "/home/me/fakrun opcheck x.so", 'one machine, "/home'),
            ("command", "fakrun opcheck ~/x.so", '"/x.so"'),
            ("only", [1], "rungs [1] only"), ("machine.cpu", "C:\\x", "one machine"), ("checks", [], "no rungs or no checks"),
            ("checks", [1], "not those of schema 1"), ("machine.cores", True, "machine.cores"),
            ("excepted", [{"manner": "open files", "why": "/dev/card0"}], '"/dev"'),
            ("excepted", ["threads"], "without manner or why"),
            ("excepted", [{"manner": "threads"}], "without manner or why")):
            e = opcheck()
            *outer, last = path.split(".")
            (e[outer[0]] if outer else e)[last] = value
            self.refused(e, part)
        self.refused({**FENCE, "exit": 0}, "exits with 2")
        self.refused({**FENCE, "reason": "it needs gold"}, "not in what was said")
        self.refused([], "not evidence of schema 1")
        (self.root / "abi/evidence/one.json").write_text("{")
        self.caught("one.json: it is not JSON")

    def test_verdicts_that_disagree(self):
        e = fail(opcheck(), 2)
        self.refused({**e, "verdict": "PASS"}, "verdict is PASS, and a check")
        e["rungs"][1].update(verdict="PASS", fail=0)
        self.refused(e, "rung R1 says PASS")
        e = opcheck()
        e["rungs"][0]["fail"] = 1
        self.refused(e, "rung R0 says PASS")
        e = bench()
        e["gate"]["matmul_host"] = 3
        self.refused(e, "its gate says PASS, and 3")

    # ---- the ledger and the fences

    def test_ledger(self):
        for key, value, part in (("file", "test/none.c", "has no test test_it"),
                                 ("function", "test_i", "has no test test_i"),
                                 ("test", "other", "has no test other")):
            ledger = copy.deepcopy(LEDGER)
            ledger["assumptions"][3]["tests"][0][key] = value
            self.put("ledger", ledger)
            self.caught("ledger.json: registry: ", part)
        self.put("ledger", {**LEDGER, "assumptions": [ASSUMPTION] * 7})
        self.caught("7 assumptions, not 8")
        self.put("ledger", LEDGER)
        (self.root / "test/test_it.c").write_text(C_TEST.replace("cmocka_unit_test(test_it),", ""))
        self.caught("does not run test_it")
        (self.root / "core/search.c").write_text("let in\n")
        self.caught('core/search.c has no "refused here"')

    def fakrun(self, body):
        path = self.root / "fakrun"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return self.run_it("--fence", "gpu", path)

    def test_fences_are_what_was_said(self):
        said = self.fakrun('echo "fakrun: backend gpu is fenced: no gold; see abi/SUPPORT.md" >&2\n'
                           'test "$*" = "--backend gpu -m model.gguf -p Hello" && exit 2')
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        fence = json.loads((self.root / "abi/evidence/gpu.json").read_text())
        self.assertEqual((fence["reason"], fence["backend"], fence["exit"]), ("no gold", "gpu", 2))
        self.assertEqual(self.rows()["gpu", "-", "everything", "all"], ("FENCED", "gpu.json"))
        for body in ("exit 0", "exit 2", 'echo "fakrun: no model" >&2; exit 2',
                     'echo "fakrun: backend gpu is fenced: no; see abi/SUPPORT.md" >&2; exit 1'):
            said = self.fakrun(body)
            self.assertEqual(said.returncode, 1)
            self.assertIn("fakrun does not fence gpu", said.stderr)


if __name__ == "__main__":
    unittest.main()
