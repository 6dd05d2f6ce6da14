#!/usr/bin/env python3
"""cuda_sim.py FAKRUN PLUGINS MODELS WHAT: plugins/cuda in emulation.

WHAT  host           sentences, options, faults, tokens of tiny models
      plan CALLS     what a token launches, counted by the program CALLS (test_cuda_calls), and the README
      ops ORDER      opcheck, all rungs, fibers in that order (0, ascending, proves nothing), both classes
      part ORDER     every op once, class approx: for builds with sanitizers
      races STEPS    the parts of ops that see a race soonest, in two orders, and the program STEPS
                     (test_cuda_steps): what kills mutants
      real CALLS     SmolLM2 (FAK_TEST_MODEL): eight tokens, the bits of cpu-ref; its launches
The real plugin file, where it was built, is tried too: with the emulated libcuda.so.1.
"""
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tempfile
import unittest

FAKRUN, PLUGINS, MODELS = (os.path.abspath(a) for a in sys.argv[1:4])
WHAT = sys.argv[4:]
SIM = os.path.join(PLUGINS, "fak-backend-cuda-sim.so")
REAL = os.path.join(PLUGINS, "fak-backend-cuda.so")
ROOM = tempfile.mkdtemp(prefix="fak-test-cuda-")
CUDA = pathlib.Path(__file__).resolve().parent.parent / "plugins/cuda"
DTYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k"]


def run(*args, sim="", **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FAK_")}
    clean.update(HOME=ROOM, XDG_CACHE_HOME=os.path.join(ROOM, "cache"), FAK_CUDA_SIM=sim, **env)
    return subprocess.run([FAKRUN, *args], env=clean, stdin=subprocess.DEVNULL, check=False,
                          capture_output=True, timeout=1500, text=True)


def model(name):
    return os.path.join(MODELS, name + ".gguf")


def generate(name, *args, plugin=SIM, n="8", **env):
    return run("-m", model(name), "-p", "Hello the world", "-n", n, "--json", "--backend-path",
               plugin, "--trust", *args, **env)


def ids(said):
    return json.loads(said.stdout)["ids"]


def check_launches(case, path):
    """plan.py and the real graph agree on what a token launches."""
    said = subprocess.run([WHAT[1], SIM, path], check=True, capture_output=True, text=True,
                          env={**os.environ, "FAK_CUDA_SIM": "order=1"})
    shape = json.loads(run("inspect", path, "--json").stdout)["model"]
    counted, plan = json.loads(said.stdout), runpy.run_path(str(CUDA / "plan.py"))
    case.assertEqual(counted["layers"], shape["layers"])
    case.assertEqual(counted["launches"], plan["launches"](shape))
    case.assertEqual(counted["submits"], 2)
    return counted["launches"]


class Plan(unittest.TestCase):
    def test_launches(self):
        for name in ("tiny-f32", "odd-q4_1"):
            self.assertEqual(check_launches(self, model(name)), 2 * 9 + 6)

    def test_weights(self):
        """Of a tied model: what the file has, less norms and the table of rope."""
        plan = runpy.run_path(str(CUDA / "plan.py"))
        for name in ("tiny-f32", "odd-f32"):
            shape = json.loads(run("inspect", model(name), "--json").stdout)["model"]
            others = (2 * shape["layers"] + 1) * shape["width"] * 4 + shape["context"] * shape["rot_dim"] * 4
            self.assertEqual(plan["weight_bytes"](shape, "f32"), shape["weight_bytes"] - others)

    def test_readme(self):
        subprocess.run([str(CUDA / "plan.py"), "--check"], check=True)


class Host(unittest.TestCase):
    def refused(self, said, sentence, status=2):
        self.assertEqual(said.returncode, status, said.stderr)
        self.assertRegex(said.stderr, sentence)

    def test_no_driver(self):
        """One line says why; whoever is chosen by itself is chosen as before."""
        for sim, why in (("version=12040", r"absent: the CUDA driver is of version 12\.4; the kernels "
                                           r"need 13\.0 or newer"),
                         ("devices=0", "absent: the CUDA driver is there, but no card is")):
            said = run("backends", "--backend-path", SIM, "--trust", sim=sim)
            lines = [line for line in said.stdout.splitlines() if "absent" in line]
            self.assertEqual(len(lines), 1, said.stdout)
            self.assertRegex(lines[0], why)
            self.refused(generate("tiny-f32", sim=sim), why)
        self.refused(generate("tiny-f32", sim="major=7"),
                     r"card 0 is of compute capability 7; the kernels need 8\.0 or newer")
        if not os.path.exists(REAL):
            return
        said = run("backends", "-v", "--backend-path", REAL, "--trust")
        if "device 0:" not in said.stdout:  # there may be a card
            self.assertRegex(said.stdout, r"(?m)^cuda .*absent: ")

    def test_the_real_file(self):
        if not os.path.exists(REAL):
            return
        folder = os.path.join(PLUGINS, "cuda", "sim")
        said = generate("tiny-f32", "-o", "exact=1", plugin=REAL, LD_LIBRARY_PATH=folder)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("discrete", said.stderr)
        self.assertEqual(ids(said), ids(generate("tiny-f32", "-o", "exact=1")))

    def test_options(self):
        for option, part in (("exact=2", "0 to 1"), ("fused=x", "0 to 1"), ("graph=", "0 to 1"),
                             ("fail-alloc=9999999", "0 to 1000000"), ("speed=9", "it has: exact, fused")):
            said = generate("tiny-f32", "-o", option)
            self.refused(said, re.escape(part))
            self.assertIn(option.split("=")[0], said.stderr)

    def test_tiles(self):
        """The odd model is beyond twice each tile that its own shape meets, and no multiple of one; what it
        cannot meet is in test_cuda_steps.c."""
        tile = {k: int(v) for k, v in re.findall(r"(\w+) = (\d+),", (CUDA / "args.h").read_text())}
        shape = json.loads(run("inspect", model("odd-f32"), "--json").stdout)["model"]
        fed = 80 + 64  # positions of opcheck's R5
        self.assertLessEqual(fed, shape["context"])
        for n, of in ((shape["width"], "THREADS"), (shape["ffn"], "THREADS"), (shape["vocab"], "THREADS"),
                      (shape["width"], "GEMM_OUTPUTS"), (shape["ffn"], "GEMM_OUTPUTS"),
                      (shape["vocab"], "ARGMAX_COLS"), (shape["vocab"], "DOT_OUTPUTS"), (fed, "KV_PAGE")):
            self.assertGreater(n, 2 * tile[of], of)
            self.assertNotEqual(n % tile[of], 0, of)

    def test_never_chosen(self):
        said = run("-m", "none.gguf", "-p", "x", "--trust", FAK_PLUGIN_PATH=PLUGINS)
        self.assertNotRegex(said.stderr, "backend cuda-sim .*fastest")
        self.assertIn("none.gguf", said.stderr)

    def test_tokens(self):
        """The ids of the reference: every dtype; of a plain one and a K format without fused ops and
        graphs, too."""
        for dtype in DTYPES:
            right = ids(run("-m", model("tiny-" + dtype), "-p", "Hello the world", "-n", "8", "--json",
                            "--backend", "cpu-ref"))
            ways = [["exact=1"], ["exact=1", "fused=0"], ["exact=1", "graph=0"]]
            for options in ways if dtype in ("f32", "q4_k") else ways[:1]:
                more = [w for o in options for w in ("-o", o)]
                said = generate("tiny-" + dtype, *more, sim="order=3")
                self.assertEqual(said.returncode, 0, said.stderr)
                self.assertEqual(ids(said), right, (dtype, options))

    def test_sticky(self):
        """A kernel that fails loses the card: one sentence with the first cause, nothing kept."""
        for k in (1, 2, 7, 40, 90):
            for graph in ("0", "1"):
                said = generate("tiny-f32", "-o", "graph=" + graph, sim=f"fail-launch={k}")
                self.refused(said, "CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access", 1)
                self.assertEqual(said.stdout, "")
        self.refused(generate("tiny-f32", "-o", "lose-device=3"), "lost at submit 3", 1)

    def test_memory(self):
        """What does not fit is refused before work, with both numbers; any allocation may fail."""
        said = generate("tiny-f32", sim="memory=400000")
        self.assertEqual((said.returncode, said.stdout), (2, ""))
        fits = re.search(r"takes \d+ bytes of device memory; 400000 of 400000 are free; .*; the largest context "
                         r"that fits is (\d+)\n", said.stderr)
        self.assertTrue(fits, said.stderr)
        for more, memory in ((["--ctx", fits[1]], 400000), ([], 560000)):
            said = generate("tiny-f32", *more, sim=f"memory={memory}")
            self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("64 rows a step, not 128: so the context fits", said.stderr)
        seen = 0
        for k in range(1, 200):
            said = generate("tiny-f32", "-o", f"fail-alloc={k}", n="2")
            if not said.returncode:
                break
            seen += 1
            self.assertIn(said.returncode, (1, 2), said.stderr)
            self.assertRegex(said.stderr, r"\d+ bytes of device memory asked, refused by option "
                                          r"fail-alloc; \d+ of \d+ are free")
        self.assertGreater(seen, 20)


class Ops(unittest.TestCase):
    def check(self, order, exact, *more, rungs=None):
        args = [*more, *(["--rungs", rungs] if rungs else [])]
        said = run("opcheck", SIM, "--trust", "-q", "--json", "-", "-o", f"exact={exact}", *args,
                   sim=f"order={order}")
        self.assertTrue(said.stdout, (order, exact, more, said.stderr[-2000:]))
        evidence = json.loads(said.stdout)
        failed = [c for c in evidence["checks"] if c["verdict"] == "FAIL"]
        self.assertEqual(failed, [], (order, exact, more))
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(evidence["device"]["class"], "reference" if exact else "approx")
        return len(evidence["checks"])

    @unittest.skipUnless(WHAT[0] == "ops", "")
    def test_ops(self):
        """Every rung; a model whose dimensions are beyond twice a tile and no multiple of one."""
        for exact in (0, 1):
            self.assertGreater(self.check(WHAT[1], exact, "-m", model("odd-f32")), 200)
            for dtype in ("f16", "q8_0", "q4_1"):
                self.check(WHAT[1], exact, "-m", model("odd-" + dtype), rungs="5")

    @unittest.skipUnless(WHAT[0] == "part", "")
    def test_part(self):
        self.check(WHAT[1], 0, rungs="1")

    @unittest.skipUnless(WHAT[0] == "races", "")
    def test_races(self):
        for order in (1, 2):
            said = subprocess.run([WHAT[1], SIM], env={**os.environ, "FAK_CUDA_SIM": f"order={order}"},
                                  check=False, capture_output=True, timeout=300, text=True)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        for order in (1, 2):
            for exact in (0, 1):
                for dtype in ("f32", "q4_1"):
                    self.check(order, exact, "-m", model("odd-" + dtype), rungs="5")
        for order in (1, 2):
            for exact in (0, 1):
                self.check(order, exact, rungs="1")

    @unittest.skipUnless(WHAT[0] == "real", "")
    def test_real(self):
        real = os.environ.get("FAK_TEST_MODEL")
        if not real:
            self.skipTest("FAK_TEST_MODEL names no model")
        args = ("-m", real, "-p", "The capital of France is", "-n", "8", "--json")
        right = ids(run(*args, "--dtype", "f32", "--backend", "cpu-ref"))
        said = run(*args, "--dtype", "f32", "--backend-path", SIM, "--trust", sim="order=1")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(ids(said), right)
        print("tokens a second:", json.loads(said.stdout)["timing"]["decode_tok_s"], file=sys.stderr)
        print("launches a token:", check_launches(self, real), file=sys.stderr)
        exact = run(*args, "--backend-path", SIM, "--trust", "-o", "exact=1", sim="order=2")
        self.assertEqual(ids(exact), ids(run(*args, "--backend", "cpu-ref")))


if __name__ == "__main__":
    chosen = {"host": "Host", "plan": "Plan"}.get(WHAT[0], "Ops")
    if WHAT[:1] == ["real"] and not os.environ.get("FAK_TEST_MODEL"):
        print("FAK_TEST_MODEL names no model")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], chosen], verbosity=2)
