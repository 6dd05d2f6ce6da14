#!/usr/bin/env python3
"""test_opcheck.py FAKRUN PLUGINS_DIR HONEST WRONG_DIR MODEL quick|all

fakrun opcheck passes what is right and finds what is wrong, each in the check that is about it.

PLUGINS_DIR has cpu-ref and template as files; HONEST is a whole device; WRONG_DIR has those of
test/mock/wrong.h, whose table says where each is to be found; MODEL is a tiny one.
"""
import concurrent.futures
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
if len(sys.argv) < 7:
    sys.exit(__doc__)
FAKRUN, PLUGINS, HONEST, WRONG, MODEL = (os.path.abspath(a) for a in sys.argv[1:6])
WHICH = sys.argv[6]
CPU_REF, TEMPLATE = (os.path.join(PLUGINS, f"fak-backend-{n}.so") for n in ("cpu-ref", "template"))
ROOM = tempfile.mkdtemp(prefix="fak-test-opcheck-")
SANITIZED = b"__asan_init" in pathlib.Path(FAKRUN).read_bytes()
SLOW = 8 if SANITIZED else 1
SECONDS = ["--probe-seconds", str(4 * SLOW), "--seconds", str(15 * SLOW)]  # those that hang take it
RUNGS = ["R0", "R1", "R2", "R3", "R4", "R5", "R6"]
# One for each of: a crash, a claim, an op, a step, what is left behind.
QUICK = ["op-sigsegv", "sync-async", "rows-beyond", "keeps-step", "at-exit"]
HIDDEN = ["lying-capacity", "leaks-memory", "loses-memory"]  # from builds with sanitizers

loader = importlib.machinery.SourceFileLoader("matrix", str(HERE.parent / "scripts/render-matrix"))
matrix = importlib.util.module_from_spec(importlib.util.spec_from_loader("matrix", loader))
loader.exec_module(matrix)


def table():
    """name: (stage, part of the sentence) of each row."""
    text = re.sub(r"\\\n\s*", "", (HERE / "mock/wrong.h").read_text())
    rows = re.findall(r'WRONG\(\w+, "([^"]+)", STAGE_(\w+), [01],\s*"([^"]*)",', text)
    return {name: (stage, part) for name, stage, part in rows}


ROWS = table()
WRONG_ROWS = [n for n, (stage, _) in ROWS.items() if stage != "FINE"]
FINE_ROWS = [n for n, (stage, _) in ROWS.items() if stage == "FINE" and n != "fault-good"]


def environment():
    """Nothing of ours; a crash is to be a crash.  MALLOC_PERTURB_, which meson sets, would fill the 64
    MiB of the honest device hundreds of times."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FAK_", "MALLOC_PERTURB_"))}
    env["ASAN_OPTIONS"] = "handle_segv=0:handle_sigill=0:handle_abort=0:detect_leaks=0"
    return env


class Said:
    """What one run of opcheck said."""

    def __init__(self, *args):
        handle, path = tempfile.mkstemp(suffix=".json", dir=ROOM)
        os.close(handle)
        self.args = args
        done = subprocess.run([FAKRUN, "opcheck", *args, "--json", path], env=environment(),
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=900,
                              check=False)
        self.code, self.err = done.returncode, done.stderr.decode()
        self.out = done.stdout.decode()
        text = pathlib.Path(path).read_text()
        self.evidence = json.loads(text) if text else {}
        self.checks = self.evidence.get("checks", [])

    def told(self, verdict):
        """The checks of a verdict, each as one sentence."""
        return [f"{c['rung']} {c['check']}, {c['detail']}: {c['reason']}" for c in self.checks
                if c["verdict"] == verdict]

    def verdict(self, check, detail=None):
        """Of the checks of that name: FAIL, PASS or ABSTAIN; None without one."""
        found = {c["verdict"] for c in self.checks
                 if c["check"] == check and detail in (None, c["detail"])}
        return next((v for v in ("FAIL", "PASS", "ABSTAIN") if v in found), None)


def file_of(name):
    return os.path.join(WRONG, f"fak-backend-{name}.so")


class Case(unittest.TestCase):
    maxDiff = None

    def run_it(self, *args, seed="7"):
        said = Said(*args, "--seed", seed, *SECONDS)
        self.assertEqual(said.err, "", args)  # no terminal, no progress
        return said

    def all_of(self, runs):
        """[(arguments, Said)] of lists of arguments, as many at once as there are cores."""
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(zip(runs, pool.map(lambda args: self.run_it(*args), runs)))

    def assert_passed(self, said):
        what = f"{said.args}: exit {said.code}\n{said.out}"
        self.assertEqual(said.told("FAIL"), [], what)
        self.assertEqual(said.code, 0, what)
        self.assertEqual(said.evidence["verdict"], "PASS", what)
        verdicts = {r["rung"]: r["verdict"] for r in said.evidence["rungs"]}
        self.assertEqual(verdicts, {r: "PASS" if r != "R5" or "-m" in said.args else "ABSTAIN"
                                    for r in RUNGS}, what)

    def assert_failed(self, name, said):
        """In the check that is about it."""
        stage, part = ROWS[name]
        failed = said.told("FAIL")
        what = f"{name}: exit {said.code}, \"{part}\" in\n" + "\n".join(failed[:9])
        self.assertEqual(said.code, 1, what)
        self.assertEqual(said.evidence["verdict"], "FAIL", what)
        found = [f for f in failed if part.lower() in f.lower()]
        if stage in ("NOTE", "LIBRARY", "HANDSHAKE", "OPEN") and name != "note-class":
            found = [f for f in found if f.startswith("R0 ")]
        self.assertTrue(part and found, what)
        first = next(c for c in said.checks if c["verdict"] == "FAIL")
        begin = f"begin with the first: {first['rung']} {first['check']}"
        self.assertEqual(begin in said.out, len(failed) > 1, what)

    def assert_found(self, names):
        for (path, *_), said in self.all_of([[file_of(n)] for n in names]):
            name = os.path.basename(path)[len("fak-backend-"):-len(".so")]
            with self.subTest(name):
                self.assert_failed(name, said)


class Quick(Case):
    def test_right_ones_pass(self):
        start = time.monotonic()
        for _, said in self.all_of([[CPU_REF], [HONEST], [TEMPLATE]]):
            with self.subTest(said.args):
                self.assert_passed(said)
                print(f"{said.evidence['plugin']['file']}: {said.evidence['seconds']} s",
                      file=sys.stderr)
        self.assertLess(time.monotonic() - start, 240 * SLOW)  # generous: others work here too

    def test_wrong_ones_are_found(self):
        self.assert_found(QUICK)

    @unittest.skipUnless(SANITIZED, "without sanitizers all can be seen")
    def test_what_sanitizers_hide(self):
        """Their malloc does not tell what is in use: that is said, and not judged."""
        for _, said in self.all_of([[file_of(n)] for n in HIDDEN]):
            self.assertEqual(said.told("FAIL"), [])
            self.assertEqual(sum("cannot be seen here" in p for p in said.told("PASS")), 3)

    def test_crash(self):
        """It is told with the check in which it came; what was found before stays."""
        said = self.run_it(file_of("op-sigsegv"))
        last = said.checks[-1]
        self.assertEqual((last["rung"], last["check"], last["detail"], last["reason"]),
                         ("R1", "matmul", "f32, matrix [1, 32]", "it crashed (SIGSEGV)"))
        self.assertEqual(said.verdict("open"), "PASS")
        self.assertIn("FAIL     matmul, f32, matrix [1, 32]: it crashed (SIGSEGV)", said.out)

    def test_listed_and_never_taken(self):
        said = self.run_it(HONEST, "-o", "leave=2", "--rungs", "1")
        self.assertEqual(said.told("FAIL"), [])
        self.assertIn("R1 taken, what it lists: it lists rmsnorm, and leaves every case of it to the host",
                      said.told("ABSTAIN"))
        self.assertEqual(self.run_it(HONEST, "--rungs", "1").verdict("taken"), "PASS")

    def test_not_opened(self):
        """What cannot be judged without a device says so."""
        said = self.run_it(file_of("fault-no-device"))
        self.assertIn("absent: no such card", said.told("FAIL")[0])
        for what in ("thread exit", "exit handlers"):
            self.assertIn(f"R0 manners, {what}: none of its devices was opened", said.told("ABSTAIN"))

    def test_hang(self):
        said = self.run_it(file_of("entry-hang"))
        self.assertEqual(said.told("FAIL"), [f"R0 load, : it did not answer within {SECONDS[1]} s"])

    def refused(self, args, *parts, code=2):
        done = subprocess.run([FAKRUN, "opcheck", *args], env=environment(), capture_output=True,
                              timeout=100, check=False, text=True)
        self.assertEqual((done.returncode, done.stdout), (code, ""), (args, done.stderr))
        self.assertEqual(done.stderr.count("\n"), 1)
        for part in ("fakrun: ", *parts):
            self.assertIn(part, done.stderr)

    def test_refusals(self):
        here = pathlib.Path(ROOM)
        (here / "fak-backend-open.so").write_bytes(b"")
        (here / "fak-backend-open.so").chmod(0o666)
        self.refused([], "no backend is given", "usage: fakrun opcheck FILE.so")
        self.refused([CPU_REF, "--backend", "cpu-ref"], "one of them is meant")
        self.refused([CPU_REF, HONEST], HONEST)
        self.refused([str(here / "fak-backend-gone.so")], "No such file")
        self.refused([MODEL], "a backend is named fak-backend-NAME.so")
        self.refused([ROOM], "a backend is named fak-backend-NAME.so")
        self.refused([str(here / "fak-backend-open.so")], "fak-backend-open.so", "writ")
        self.refused(["--backend", "nobody"], 'no backend "nobody"')
        self.refused(["--backend", "cpu-ref:x"], "NAME:NUMBER", "cpu-ref:x")
        self.refused([CPU_REF, "-o", "fused"], "name=value")
        self.refused([CPU_REF, "--except", "threads"], "MANNER=WHOSE", '"threads"')
        self.refused([CPU_REF, "--except", "fibres=the driver"], "MANNER=WHOSE", "fibres")
        self.refused([CPU_REF, "--seed", "0"], "seed")
        self.refused([CPU_REF, "-m", CPU_REF], "GGUF", code=1)
        self.refused([CPU_REF, "-m", os.path.join(ROOM, "gone.gguf")], "gone.gguf", code=1)

    def test_help(self):
        done = subprocess.run([FAKRUN, "opcheck", "--help"], capture_output=True, text=True,
                              timeout=60, check=True)
        for part in ("usage: fakrun opcheck FILE.so", "--except", "exit handlers", "R6", "-m"):
            self.assertIn(part, done.stdout)
        source = (HERE.parent / "core/check.c").read_text()
        for name in re.findall(r'"([^"]+)"', re.search(r"check_manner\[\] = \{(.*?)\}", source, re.S)[1]):
            self.assertIn(name, done.stdout.replace("\n", " "))

    def test_no_elf(self):
        """A file that cannot be loaded is evidence too, of a FAIL."""
        path = os.path.join(ROOM, "fak-backend-text.so")
        pathlib.Path(path).write_text("not a library\n")
        said = self.run_it(path)
        self.assertEqual(said.code, 1)
        self.assertEqual(said.told("FAIL"),
                         ["R0 load, : backend fak-backend-text.so: it is not an ELF file"])
        self.assertRegex(said.evidence["plugin"]["sha256"], "^[0-9a-f]{64}$")
        self.assertTrue(said.out.startswith("fak-backend-text.so\nR0 "), said.out)


class Whole(Case):
    def test_right_ones_pass(self):
        runs = [["--backend", "cpu-ref"], [CPU_REF, "-o", "fused=1"], [HONEST, "-o", "exact=1"],
                [HONEST, "-o", "graph-only=1"], [HONEST, "-o", "eager=1"], [HONEST, "-o", "hold=1"],
                [HONEST, "-o", "fused=0"], [HONEST, "-o", "exact=1", "-o", "eager=1"],
                [HONEST, "-o", "leave=6"]]
        for _, said in self.all_of(runs):
            with self.subTest(said.args):
                self.assert_passed(said)
                caps = said.evidence["device"]["caps"]
                for cap in caps:
                    self.assertEqual(said.verdict(cap), "PASS", cap)
                if "honest" in said.args[0]:  # it has fak.stats/1
                    for check in ("argmax", "allocations", "submit", "device allocation",
                                  "loss at submit"):
                        self.assertEqual(said.verdict(check), "PASS", check)

    def test_what_abstains(self):
        """Only where there is nothing to judge by."""
        for args in ([CPU_REF, "-o", "fused=1"], [HONEST, "-o", "exact=1"]):
            said = self.run_it(*args)
            rows = [c for c in said.checks if c["verdict"] == "ABSTAIN"]
            for row in rows:
                self.assertTrue(row["reason"], row)
                if args[0] == HONEST and "_k" in row["detail"]:  # it keeps no K formats
                    continue
                most = ("R2", "R4", "R5", "R6") if args[0] == CPU_REF else ("R5",)
                self.assertIn(row["rung"], most)
            self.assertNotIn("R0", [r["rung"] for r in rows])

    def test_rows_that_are_fine(self):
        self.assertGreaterEqual(len(FINE_ROWS), 5)
        for _, said in self.all_of([[file_of(n)] for n in FINE_ROWS]):
            with self.subTest(said.args):
                self.assert_passed(said)

    def test_every_wrong_row_is_found(self):
        self.assertGreater(len(WRONG_ROWS), 115)
        start = time.monotonic()
        self.assert_found(WRONG_ROWS)
        print(f"{len(WRONG_ROWS)} wrong ones: {time.monotonic() - start:.0f} s", file=sys.stderr)

    def test_every_op_that_lies(self):
        """One wrong bit and one NaN in any op, whichever it is, are found in the check of that op."""
        names = {1: "embed", 2: "rmsnorm", 3: "matmul", 5: "rope", 7: "attention, kv_append",
                 8: "glu", 9: "add", 10: "scale", 11: "softcap", 12: "take_rows", 13: "argmax"}
        for name in ("wrong-bit", "nan-writer"):
            runs = [[file_of(name), "-o", f"op={op}"] for op in names]
            for (_, said), op in zip(self.all_of(runs), names.values()):
                with self.subTest(name, op=op):
                    failed = {c["check"] for c in said.checks
                              if c["verdict"] == "FAIL" and c["rung"] == "R1"}
                    self.assertEqual(failed, {op})

    def test_silent_at(self):
        for at in ("load", "begin", "op", "read", "write", "wait", "clone"):
            said = self.run_it(file_of("silent"), "-o", f"at={at}")
            self.assertEqual(said.code, 1, at)
            self.assertTrue(any("no sentence" in f for f in said.told("FAIL")), at)

    def test_except(self):
        path = file_of("at-exit")
        why = "exit handlers=libdriver.so, which the vendor will not change"
        said = self.run_it(path, "--except", "threads=nobody", "--except", why)
        self.assertEqual((said.code, said.told("FAIL")), (0, []), said.out)
        self.assertIn("R0 manners, exit handlers: excepted, libdriver.so, which the vendor will "
                      "not change: code of it runs when the process exits", said.told("ABSTAIN"))
        self.assertEqual(said.evidence["excepted"],
                         [{"manner": "exit handlers", "why": why.partition("=")[2]}])
        self.assertEqual(self.run_it(path, "--except", "threads=nobody").code, 1)
        said = self.run_it(file_of("op-sigsegv"), "--except", "standard output=a library")
        self.assertEqual((said.code, said.evidence["excepted"]), (1, []))

    def test_real_model(self):
        for args in ([CPU_REF], [HONEST], [HONEST, "-o", "exact=1"]):
            said = self.run_it(*args, "-m", MODEL)
            self.assert_passed(said)
            self.assertIn("argmax equal at ", "".join(said.told("PASS")))
            self.assertEqual(said.evidence["model"]["file"], os.path.basename(MODEL))
            self.assertRegex(said.evidence["model"]["sha256"], "^[0-9a-f]{64}$")
        said = self.run_it(file_of("wrong-bit"), "-m", MODEL)
        self.assertEqual({c["verdict"] for c in said.checks if c["rung"] == "R5"}, {"FAIL"})


class Evidence(Case):
    ledger = {"assumptions": [], "backends": [
        {"name": n, "runs_on": "cpu", "what": n} for n in ("cpu-ref", "template", "honest", "at-exit")]}

    def test_it_is_evidence(self):
        for args in ([CPU_REF, "-m", MODEL], [TEMPLATE], [HONEST], [HONEST, "-o", "exact=1"],
                     ["--backend", "cpu-ref"], [file_of("at-exit")]):
            said = self.run_it(*args)
            e = said.evidence
            self.assertEqual(matrix.check_evidence(e, self.ledger), [])
            self.assertNotIn(os.path.dirname(FAKRUN), json.dumps(e))
            file = None if args[0] == "--backend" else args[0]
            self.assertEqual(e["plugin"]["file"], os.path.basename(file) if file else None)
            whole = subprocess.run(["sha256sum", file or FAKRUN], capture_output=True, check=True)
            self.assertEqual(e["plugin"]["sha256"], whole.stdout.split()[0].decode())
            states = matrix.states_of(e, self.ledger)
            self.assertEqual(states["opcheck", "all"][0], ["WITNESSED", "FAIL"][said.code])
            for dtype in e["device"]["upload_dtypes"]:
                self.assertEqual(states[f"weights {dtype}", "R1"][0], "WITNESSED", dtype)
            for mode in [n for n in e["device"]["numerics"] if n.startswith("act_")]:
                self.assertEqual(states[mode, "R1"][0], "WITNESSED", mode)
            for cap in e["device"]["caps"]:
                self.assertEqual(states[cap, "R2"][0], "WITNESSED", cap)
            for check in e["checks"]:
                self.assertIn(check["rung"], RUNGS)
                self.assertTrue(check["verdict"] == "PASS" or check["reason"], check)

    def figures(self, seed):
        said = self.run_it(HONEST, seed=seed)
        self.assertEqual(said.evidence["seed"], int(seed))
        return [c for c in said.checks if c["rung"] != "R6" and c["check"] != "leaks"]

    def test_a_seed_repeats_all(self):
        first = self.figures("41")
        self.assertEqual(first, self.figures("41"))
        self.assertNotEqual(first, self.figures("42"))

    def test_seeds_of_the_clock(self):
        seeds = set()
        for _ in range(2):
            said = Said(TEMPLATE)
            self.assertEqual(said.code, 0)
            self.assertIn(f"seed {said.evidence['seed']}\n", said.out)
            seeds.add(said.evidence["seed"])
            time.sleep(1.1)
        self.assertEqual(len(seeds), 2)

    def test_json_on_standard_output(self):
        done = subprocess.run([FAKRUN, "opcheck", TEMPLATE, "--json", "-"], env=environment(),
                              capture_output=True, timeout=300, check=True)
        self.assertEqual(json.loads(done.stdout)["verdict"], "PASS")
        self.assertEqual(done.stderr, b"")

    def test_tables(self):
        short, long = self.run_it(CPU_REF), self.run_it(CPU_REF, "-v")
        for check in long.checks:
            line = check["check"] + (", " + check["detail"] if check["detail"] else "")
            self.assertRegex(long.out, rf"(?m)^   {check['verdict']} +{re.escape(line)}\b")
        self.assertLess(short.out.count("\n"), 40)
        self.assertNotIn("PASS     matmul", short.out)
        self.assertIn("all bits equal", long.out)
        for said in (short, long):
            first = 'cpu-ref 0.1.0, fak; class reference, cpu "reference"'
            self.assertEqual(said.out.splitlines()[0], first)
            passed = sum(c["verdict"] == "PASS" for c in said.checks)
            self.assertRegex(said.out.splitlines()[-1],
                             rf"^PASS: 0 checks failed, {passed} passed, ")

    def progress(self, *args):
        """What a terminal gets to see on standard error."""
        ours, theirs = pty.openpty()
        child = subprocess.Popen([FAKRUN, "opcheck", HONEST, *args], env=environment(),
                                 stderr=theirs, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        os.close(theirs)
        seen = b""
        try:
            while select.select([ours], [], [], 300)[0]:
                piece = os.read(ours, 4096)
                seen += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        self.assertEqual(child.wait(60), 0)
        return seen

    def test_progress(self):
        self.assertRegex(self.progress(), rb"\rR[1-6] \w+")
        self.assertEqual(self.progress("-q"), b"")


def main():
    suite = unittest.TestSuite()
    for case in [Quick] if WHICH == "quick" else [Whole, Evidence]:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    try:
        result = unittest.TextTestRunner(verbosity=2).run(suite)
    finally:
        shutil.rmtree(ROOM)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
