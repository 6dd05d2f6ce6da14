#!/usr/bin/env python3
"""Proves what scripts/bench-llamacpp makes of numbers, and in which order it asks for them.

Made-up numbers and sides that measure nothing; no network, no peer, no model.
"""
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts/bench-llamacpp"
sys.path.insert(0, str(SCRIPT.parent))
from llamacpp import children, install, others, report, rounds  # noqa: E402
from llamacpp.children import Stop  # noqa: E402

loader = importlib.machinery.SourceFileLoader("bench_llamacpp", str(SCRIPT))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_llamacpp", loader))
loader.exec_module(script)

SVG = "{http://www.w3.org/2000/svg}"


def row(phase, value, **more):
    return {"phase": phase, "median": value, "min": value * 0.9, "max": value * 1.1, **more}


def item(phase="decode", ours=(30.0,), peer=(20.0,), file="m.Q8_0.gguf", threads=1, **more):
    units = {"load": "s", "ttft": "s", "rss": "bytes"}
    more = {"unit": units.get(phase, "tok/s"), "flash_attn": "on", "tokens": 128, "depth": 0,
            **more}
    return report.item(file, threads, phase, list(ours), list(peer), **more)


class Numbers(unittest.TestCase):
    def test_item(self):
        i = item(ours=[10, 40, 30], peer=[10, 10, 20])
        self.assertEqual((i["ours"], i["peer"]), (30, 10))
        self.assertEqual(i["ratio"], 1.5)  # of 1, 4, 1.5: not 30 / 10
        self.assertEqual((i["low"], i["high"], i["best"], i["rounds"]), (1, 4, 2, 3))
        self.assertTrue(i["noisy"])
        self.assertFalse(item(ours=[10, 14.9], peer=[10, 10])["noisy"])
        self.assertEqual(item("load", [3, 1], [4, 2])["best"], 0.5)  # the shortest of each
        for ours, peer in (([], []), ([1], [1, 2])):
            self.assertRaises(ValueError, item, "decode", ours, peer)

    def test_better_setting(self):
        self.assertEqual(report.better_setting({"on": [9, 1, 2], "off": [3, 3, 3]}), "off")
        found = {"on": [{("load", None): 1}, {("load", None): 2}],
                 "off": [{("load", None): 4}, {("load", None): 5}]}
        self.assertEqual(report.better_setting(rounds.sides(("load", None), found)), "on")
        found["off"] = [{("decode", 8): 99}]  # given up after the first round
        found["on"] = [{("decode", 8): 1}, {("decode", 8): 2}]
        self.assertEqual(rounds.sides(("decode", 8), found), {"on": [1, 2]})

    def test_values(self):
        """The best run of a process, whichever side's rows they are."""
        rows = [row("decode", 50, tokens=128, depth=1024), row("memory", 7, what="the program"),
                row("memory", 100, what="peak of the process")]
        self.assertEqual(rounds.values("deep", rows),
                         {("deep", 128): 50 * 1.1, ("rss", None): 100 * 1.1})
        self.assertEqual(rounds.values("decode", rows), {("decode", 128): 50 * 1.1})
        rows = [row("load", 1), row("ttft", 2, what="with load"), row("ttft", 9, what="loaded")]
        self.assertEqual(rounds.values("load", rows), {("load", None): 0.9, ("ttft", None): 1.8})
        rows = [row("prefill", 10, tokens=128), row("prefill", 20, tokens=512)]
        self.assertEqual(rounds.values("prefill", rows),
                         {("prefill", 128): 11, ("prefill", 512): 22})
        self.assertEqual(rounds.values("batch8", [row("batch", 10, tokens=32, batch=8, depth=0)]),
                         {("batch8", 32): 11})


class Page(unittest.TestCase):
    def setUp(self):
        self.items = [item(ours=[30, 30], peer=[20, 20]),
                      item("prefill", [100], [400], threads=2, tokens=512),
                      item("deep", [8, 16], [8, 8], depth=1024, ours_kv_f32=7.25),
                      item("batch8", batch=8, tokens=32), item("load", [0.05], [0.1]),
                      item("rss", [2e8], [1e8], file="a|b <&>.gguf")]

    def test_table(self):
        lines = list(report.table(self.items))
        self.assertEqual(len(lines), 2 + len(self.items))
        self.assertEqual({len(re.split(r"(?<!\\)\|", line)) for line in lines}, {13})
        self.assertEqual(lines[2], "| m.Q8_0 | 1 | decode 128 after 0 | 30.0 tok/s | 20.0 tok/s | "
                         "**1.50** | 1.50 | 1.50 | 1.50 | - | on |")
        self.assertIn("| 2 | prefill 512 | 100.0 tok/s | 400.0 tok/s | **0.25** (1 round) |",
                      lines[3])
        self.assertIn("decode 128 after 1024 | 12.0 tok/s | 8.0 tok/s | **1.50** (noisy) | 1.00 | "
                      "2.00 | 2.00 | 7.2 tok/s | on", lines[4])
        self.assertIn("batch 8 x 32", lines[5])
        self.assertIn("| load | 0.0500 s | 0.1000 s | **0.50** (1 round) |", lines[6])
        self.assertIn(r"| a\|b <&> | 1 | peak memory | 200 MB | 100 MB | **2.00** (1 round) |",
                      lines[7])

    def test_grid(self):
        lines = list(report.grid(self.items))
        self.assertEqual({len(re.split(r"(?<!\\)\|", line)) for line in lines}, {10})
        self.assertEqual(lines[0], "| file | threads | decode 128 after 0, tok/s | prefill 512, tok/s | "
                         "decode 128 after 1024, tok/s | batch 8 x 32, tok/s | load, s | "
                         "peak memory, MB |")
        self.assertEqual(lines[2:], [
            "| m.Q8_0 | 1 | 30 / 20 = **1.50** | - | 12 / 8 = **1.50** (noisy) | "
            "30 / 20 = **1.50** (1 round) | 0.05 / 0.10 = **0.50** (1 round) | - |",
            "| m.Q8_0 | 2 | - | 100 / 400 = **0.25** (1 round) | - | - | - | - |",
            "| a\\|b <&> | 1 | - | - | - | - | - | 200 / 100 = **2.00** (1 round) |"])

    def test_lines(self):
        share = {**item("bandwidth", [0.9], [0.6]), "weights": 143e6, "loop": 25e9,
                 "ours_low": 0.86, "ours_high": 0.91}
        line, = report.share_lines([share])
        for part in ("25.0 GB/s", "143 MB", "90.0%", "86.0% to 91.0%", "the peer 60.0%"):
            self.assertIn(part, line)
        busy = {**item("busy", [0.95], [0.4]), "ours_tok_s": [20, 19], "peer_tok_s": [50, 20]}
        line, = report.busy_lines([busy])
        self.assertIn("2 threads is 0.95 of decode with 1 (19.0 and 20.0 tok/s), the peer's 0.40 "
                      "(20.0 and 50.0)", line)
        once, noisy = report.noise_lines(self.items)
        self.assertIn("4 of 6 rows are of 1 round", once)
        self.assertIn("1 of 6 rows are noisy", noisy)
        self.assertEqual(list(report.noise_lines(self.items[:1])), [])

    def test_a_machine_that_is_not_quiet(self):
        before = {"wall": 10.0, "own": 3.0, "busy": 1000, "stolen": 50}
        for own, busy, stolen, taken in ((20, 2000, 0, (0, 0)), (20, 2050, 0, (0.05, 0)),
                                         (20, 3000, 30, (1, 0.03)), (20, 1990, 0, (0, 0))):
            after = {"wall": 20.0, "own": 3.0 + own, "busy": 1000 + busy, "stolen": 50 + stolen}
            for got, want in zip(others.cores(before, after, 100), taken):
                self.assertAlmostEqual(got, want)
        self.assertIn("took 1.00 cores, the hypervisor 0.03", next(others.warning((1, 0.03))))
        with tempfile.TemporaryDirectory() as room:
            for taken, quiet in (((0.04, 0.05), True), ((0.04, 0.08), False), ((0.3, 0), False)):
                a = script.parse(["--json", room + "/j", "--plot", room + "/p"])
                with unittest.mock.patch("builtins.print") as out, \
                        unittest.mock.patch.object(install, "say"):
                    script.tell(a, ["- date", "- machine", "- others", "- ours", "- peer"], taken,
                                self.items, [], [])
                told = [i["quiet"] for i in json.loads(pathlib.Path(room, "j").read_text())]
                self.assertEqual(told, [quiet] * len(self.items))
                for text in (out.call_args.args[0], pathlib.Path(room, "p").read_text()):
                    self.assertEqual("the machine was not quiet" in text, not quiet)

    def test_plot(self):
        root = ElementTree.fromstring(report.plot(self.items, ["a < b", "c"]))
        bars = [float(r.get("width")) for r in root.iter(SVG + "rect")][1:]
        one = root.findall(f"{SVG}line[@stroke-dasharray]")
        self.assertEqual((len(bars), len(one)), (6, 1))
        unit = float(one[0].get("x1")) - report.LEFT
        times = [1.5, 0.25, 1.5, 1.5, 2, 0.5]  # of time and memory the other way round
        for width, want in zip(bars, times):
            self.assertAlmostEqual(width / unit, want, 2)
        self.assertEqual(len({r.get("fill") for r in root.iter(SVG + "rect")}), 3)
        words = [t.text for t in root.iter(SVG + "text")]
        for text in ("m.Q8_0", "a|b <&>", "decode 128 after 0, 1 thr.", "0.25", "a < b", "c"):
            self.assertIn(text, words)
        width, height = float(root.get("width")), float(root.get("height"))
        for line in root.iter(SVG + "line"):
            self.assertLessEqual(max(float(line.get("x1")), float(line.get("x2"))), width)
        for text in root.iter(SVG + "text"):
            self.assertLess(float(text.get("y")), height)
        ElementTree.fromstring(report.plot([]))


class Side:
    """Keeps what it was asked for; a rate per setting."""

    def __init__(self, calls, rates):
        self.calls, self.rates = calls, rates

    def rows(self, file, threads, setting, phase, o):
        self.calls.append((setting, phase, threads, o["depth"], o["reps"]))
        self.tokens = o["decode"]
        return [row("decode", self.rates[setting], tokens=o["decode"], depth=o["depth"]),
                row("memory", 1e8, what="peak of the process")]

    def tensors(self, file):
        return 1000


class Order(unittest.TestCase):
    def run_it(self, phase, budget=None, threads=2, **more):
        a = types.SimpleNamespace(**{"rounds": 3, "reps": 2, "prefill": [8], "decode": 128,
                                     "deep": 1024, "batch": 8, "kv": "f16", "quick": False, **more})
        calls = []
        ours, peer = Side(calls, {"f16": 60, "f32": 50}), Side(calls, {"on": 40, "off": 30})
        r = rounds.Rounds(ours, peer, a, rounds.Budget(budget, 1), lambda _: 110000.0,
                          pathlib.Path("m.gguf"), threads)
        with unittest.mock.patch.object(install, "say"):
            return r.phase(phase), [c[0] for c in calls], calls, r

    def test_by_turns(self):
        items, order, calls, _ = self.run_it("deep")
        self.assertEqual(order, ["f16", "on", "off"] * 3 + ["f32"])
        self.assertEqual({c[1:] for c in calls}, {("decode", 2, 1024, 2)})
        decode, rss = items
        self.assertEqual((decode["phase"], decode["ratio"], decode["flash_attn"], decode["depth"]),
                         ("deep", 1.5, "on", 1024))
        self.assertAlmostEqual(decode["ours_kv_f32"], 55)
        self.assertEqual((rss["phase"], rss["unit"], rss["rounds"]), ("rss", "bytes", 3))

    def test_quick(self):
        """The worse setting of the peer is tried once; the rounds end with their time."""
        items, order, _, _ = self.run_it("decode", budget=100, quick=True)
        self.assertEqual(order, ["f16", "on", "off"] + ["f16", "on"] * 2)
        self.assertEqual((items[0]["rounds"], items[0]["ratio"]), (3, 1.5))
        items, order, _, _ = self.run_it("decode", budget=1e-6, quick=True)
        self.assertEqual((order, items[0]["rounds"]), (["f16", "on", "off"], 1))

    def test_budget(self):
        budget = rounds.Budget(100, 4)
        ends = [budget.phase() - time.monotonic() for _ in range(4)]
        for end, want in zip(ends, (25, 33.3, 50, 100)):  # none has used any of it
            self.assertAlmostEqual(end, want, 0)
        self.assertIsNone(rounds.Budget(None, 4).phase())

    def test_bandwidth(self):
        _, _, _, r = self.run_it("decode", threads=1)
        share, = r.shares
        self.assertAlmostEqual(share["ours"], 66 * 1000 / 110000)
        self.assertAlmostEqual(share["peer"], 44 * 1000 / 110000)
        for phase, threads in (("decode", 2), ("deep", 1)):
            self.assertEqual(self.run_it(phase, threads=threads)[3].shares, [])

    def test_busy(self):
        a = types.SimpleNamespace(rounds=2, reps=1, prefill=[8], decode=16, batch=8, kv="f16")
        calls = []
        sides = Side(calls, {"f16": 60}), Side(calls, {"off": 30})
        with unittest.mock.patch.object(install, "say"), \
                unittest.mock.patch.object(children, "start") as start, \
                unittest.mock.patch.object(children, "end") as end:
            start.return_value.poll.return_value = None
            i = rounds.busy(*sides, a, "machine", pathlib.Path("m.gguf"))
            start.assert_called_once_with(["machine", "spin"])
            end.assert_called_once_with(start.return_value)
            start.return_value.poll.return_value = 1
            self.assertRaisesRegex(Stop, "has ended", rounds.busy, *sides, a, "machine",
                                   pathlib.Path("m.gguf"))
            self.assertEqual(end.call_count, 2)
        self.assertEqual([c[:3] for c in calls[:4]], [
            ("f16", "decode", 1), ("f16", "decode", 2), ("off", "decode", 1), ("off", "decode", 2)])
        self.assertEqual([side.tokens for side in sides], [16, 8])
        self.assertEqual((i["phase"], i["ours"], i["ours_tok_s"], i["peer_tok_s"]),
                         ("busy", 1, [60, 60], [30, 30]))

    def test_command(self):
        for backend, has in (("cpu", True), ("cpu-ref", False)):
            words = rounds.Ours(pathlib.Path("/x/fakrun"), backend, ["fused=1"]).command(
                "m.gguf", 2, "f16")
            self.assertEqual("threads=2" in words, has)
            self.assertEqual(words[words.index("fused=1") - 1], "-o")


class Children(unittest.TestCase):
    def test_nothing_is_left(self):
        with tempfile.TemporaryDirectory() as room:
            path = pathlib.Path(room) / "pid"
            with self.assertRaisesRegex(Stop, "sh has not ended after 1 s"):
                children.run(["sh", "-c", f"sleep 60 & echo $! > {path}; wait"], 1)
            pid = int(path.read_text())
        for _ in range(50):
            try:
                os.kill(pid, 0)
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (ProcessLookupError, FileNotFoundError):
                state = "gone"
            if state in ("gone", "Z"):  # a zombie waits for init
                break
            time.sleep(0.1)
        self.assertIn(state, ("gone", "Z"))
        self.assertEqual(children.running, [])

    def test_interrupted(self):
        """By a signal to the script alone, while it waits for a child."""
        with tempfile.TemporaryDirectory() as room:
            model, fake = pathlib.Path(room, "m.gguf"), pathlib.Path(room, "fakrun")
            model.write_text("")
            fake.write_text("#!/bin/sh\necho $$ > " + room + "/pid\nexec sleep 60\n")
            fake.chmod(0o755)
            code = ("import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
                    "from llamacpp import install; install.packages = install.venv = lambda: None; "
                    "install.about = lambda: {}; runpy.run_path(sys.argv.pop(1), "
                    "run_name='__main__')")
            done = subprocess.Popen(
                [sys.executable, "-B", "-c", code, SCRIPT.parent, SCRIPT, "--fakrun", fake,
                 "--files", model, "--plot", room + "/p.svg"], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True)
            for _ in range(300):
                if pathlib.Path(room, "pid").exists() and pathlib.Path(room, "pid").read_text():
                    break
                time.sleep(0.1)
            pid = int(pathlib.Path(room, "pid").read_text())
            done.terminate()
            out, err = done.communicate(timeout=30)
        self.assertEqual((done.returncode, out), (130, ""))
        self.assertEqual(err.splitlines()[-1],
                         "bench-llamacpp: interrupted; what it had started has ended")
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_machine(self):
        with tempfile.TemporaryDirectory() as room, \
                unittest.mock.patch.object(script, "BUILD", pathlib.Path(room)):
            machine = script.build_machine()
            rate, total = children.run([machine, "read", 1 << 22, "0.05"], 60)[1].split()
            self.assertGreater(float(rate), 1e7)
            self.assertNotEqual(int(total), 0)
            told = subprocess.run(["sh", "-c", f"{machine} spin & echo $!; sleep 0.5"], check=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
            for _ in range(100):  # its parent is gone, and it goes
                try:
                    os.kill(int(told.stdout), 0)
                except ProcessLookupError:
                    return
                time.sleep(0.1)
            self.fail("the busy process outlives its parent")


class Install(unittest.TestCase):
    def setUp(self):
        room = tempfile.TemporaryDirectory(prefix="fak-test-llamacpp-")
        self.addCleanup(room.cleanup)
        self.room = pathlib.Path(room.name)
        for name, path in (("ROOT", ""), ("VENV", "venv"), ("LOG", "log"),
                           ("MARK", "venv/made-by.json")):
            patch = unittest.mock.patch.object(install, name, self.room / path)
            patch.start()
            self.addCleanup(patch.stop)
        patch = unittest.mock.patch.object(install, "say")
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_step_that_fails(self):
        with self.assertRaises(Stop) as caught:
            install.step("pip install x", ["sh", "-c", "echo fine; echo 'ERROR: no network' >&2; "
                                           "echo more; exit 3"])
        self.assertEqual(str(caught.exception), "pip install x failed with exit code 3: ERROR: no "
                         "network (all of it: log)")
        self.assertIn("fine\nERROR: no network\nmore\n", (self.room / "log").read_text())

    def test_made_once_and_natively(self):
        calls = []

        def run(what, command, env=None):
            calls.append((what, command, env))
            install.VENV.mkdir(exist_ok=True)
            if env:
                self.assertTrue(pathlib.Path(env["TMPDIR"]).is_dir())
        with unittest.mock.patch.object(install, "step", run):
            install.venv()
            install.venv()
            self.assertEqual(len(calls), 2)
            self.assertEqual(calls[1][2]["CMAKE_ARGS"], "-DGGML_NATIVE=ON")
            for word in ("--no-cache-dir", "--no-binary", install.PACKAGE):
                self.assertIn(word, calls[1][1])
            self.assertEqual(calls[1][1][0], install.VENV / "bin/python")  # nowhere else
            install.MARK.write_text(json.dumps({**install.MADE_BY, "cmake_args": ""}))
            install.venv()
            self.assertEqual(len(calls), 4)

        def fail(*_):
            raise Stop("no")
        install.MARK.unlink()
        with unittest.mock.patch.object(install, "step", fail):
            self.assertRaises(Stop, install.venv)
        self.assertFalse(install.is_whole())

    def test_a_build_for_another_machine(self):
        cpu = self.room / "cpuinfo"
        cpu.write_text("flags : sse avx2 avx512f\n")
        for system, faults in (("AVX2 = 1 | AVX512 = 1 | ", None), ("AVX2 = 1 | ", "AVX512")):
            with unittest.mock.patch.object(install, "ask", lambda _: {"system": system}), \
                    unittest.mock.patch.object(install.pathlib, "Path", lambda _: cpu):
                if faults:
                    self.assertRaisesRegex(Stop, "without AVX512, which this machine has: remove "
                                           "venv", install.about)
                else:
                    self.assertEqual(install.about()["system"], system)


class Line(unittest.TestCase):
    def run_it(self, *args):
        return subprocess.run([sys.executable, "-B", SCRIPT, *args], check=False, text=True,
                              capture_output=True, timeout=60)

    def test_refused(self):
        for args, part in ((["--only", "decode,x"], "it is 'x'; there are prefill, decode"),
                           (["--threads", "0"], "takes 1 to 256"), (["--rounds", "-1"], "--rounds"),
                           (["--files", "no.gguf"], "no.gguf is no file"), (["--nosuch"], "nosuch"),
                           (["--json", "/no/such/file"], "its folder does not exist"),
                           (["--plot", ROOT / "test"], "it is a folder"),
                           (["--fakrun", SCRIPT.parent], "cannot be run")):
            said = self.run_it(*args)
            self.assertEqual((said.returncode, said.stdout), (2, ""), said.stderr)
            self.assertIn(part, said.stderr)
            self.assertTrue(said.stderr.splitlines()[-1].startswith("bench-llamacpp: "))

    def test_help(self):
        said = self.run_it("--help")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        for word in ("--quick", "--busy", "examples:", "Exit status:", "less is better"):
            self.assertIn(word, said.stdout)

    def test_defaults(self):
        full, quick = script.parse([]), script.parse(["--quick", "--rounds", "7"])
        self.assertEqual((full.rounds, full.decode, full.prefill, full.deep, full.threads),
                         (3, 128, [128, 512], 1024, [1, 2]))
        self.assertEqual((quick.rounds, quick.reps), (7, 1))
        self.assertEqual(rounds.asked("batch8", full)[1]["decode"], 32)
        self.assertEqual(rounds.asked("load", full)[1]["reps"], 1)
        self.assertEqual(script.parse(["--only", "load,decode"]).only, ["decode", "load"])


if __name__ == "__main__":
    unittest.main()
