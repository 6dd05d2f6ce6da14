#!/usr/bin/env python3
"""vulkan.py PART DRIVER FAKRUN PLUGINS STEPS MODELS NO_VULKAN: plugins/vulkan on one driver.

PART: absent, tiny, opcheck, bits, ways, validation, real, real-short.  DRIVER: lavapipe, swiftshader.  What is not
installed is skipped by exit status 77 and a sentence; scripts/setup-vulkan installs it.
"""
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PART, DRIVER = sys.argv[1:3]
FAKRUN, PLUGINS, STEPS, MODELS, NO_VULKAN = (os.path.abspath(a) for a in sys.argv[3:8])
SO = os.path.join(PLUGINS, "fak-backend-vulkan.so")
ROOM = tempfile.mkdtemp(prefix="fak-test-vulkan-")
ICD = {"lavapipe": "/usr/share/vulkan/icd.d/lvp_icd.*.json",
       "swiftshader": "/usr/lib/chromium/vk_swiftshader_icd.json"}[DRIVER]
LAYER = "/usr/lib/chromium/libVkLayer_khronos_validation.so"
# What the vendors' own code keeps: plugins/vulkan/README.md.
EXCEPT = ["--except", "open files=SwiftShader keeps the memory file of its compiler"] * (DRIVER == "swiftshader")


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("FAK_", "VK_"))}
    icd = glob.glob(ICD)
    clean.update(HOME=ROOM, XDG_CACHE_HOME=os.path.join(ROOM, "cache"), FAK_PLUGIN_PATH=PLUGINS,
                 VK_DRIVER_FILES=icd[0] if icd else "none", VK_ICD_FILENAMES=icd[0] if icd else "none")
    clean.update(more)
    return clean


def run(*args, program=FAKRUN, timeout=1700, **env):
    return subprocess.run([program, *args], env=environment(**env), stdin=subprocess.DEVNULL,
                          check=False, capture_output=True, timeout=timeout, text=True)


def tiny(name):
    return os.path.join(MODELS, name + ".gguf")


def generate(model, backend, *more, n=8, **env):
    act = [] if "--act" in more else ["--act", "f32"]
    return run("-m", model, "-p", "Hello the world", "-n", str(n), "--backend", backend, *act,
               "--trust", *more, **env)


class Absent(unittest.TestCase):
    def refused(self, *sentences, **env):
        said = generate(tiny("tiny-f32"), "vulkan", **env)
        self.assertEqual(said.returncode, 2, said.stderr)
        self.assertEqual(said.stdout, "")
        for sentence in ("has no device: absent: ", *sentences):
            self.assertIn(sentence, said.stderr)

    def driver(self, text):
        path = os.path.join(ROOM, "driver.json")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return {"VK_DRIVER_FILES": path, "VK_ICD_FILENAMES": path}

    def test_no_loader(self):
        self.refused("libvulkan.so.1", LD_PRELOAD=NO_VULKAN)

    def test_no_driver(self):
        self.refused("icd.d", VK_DRIVER_FILES="/nowhere.json", VK_ICD_FILENAMES="/nowhere.json")

    def test_malformed_driver(self):
        for text in ("{", "", "[]", "{}", '{"ICD": 3}'):
            self.refused("icd.d", **self.driver(text))

    def test_driver_without_library(self):
        icd = {"file_format_version": "1.0.0", "ICD": {"library_path": "/no/lib.so", "api_version": "1.3.0"}}
        self.refused("icd.d", **self.driver(json.dumps(icd)))

    def test_never_silently(self):
        """Without a name another is taken, also where vulkan is the only file."""
        said = run("-m", tiny("tiny-f32"), "-p", "x", "-n", "1", "--trust")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stderr, "not vulkan: class approx")
        said = run("-m", tiny("tiny-f32"), "-p", "x", "--trust", FAK_BACKEND="vulkan",
                   VK_DRIVER_FILES="/nowhere.json", VK_ICD_FILENAMES="/nowhere.json")
        self.assertEqual(said.returncode, 2, said.stderr)  # no other in its place


class Tiny(unittest.TestCase):
    OPTIONS = [["kernels=group"], ["kernels=group", "features=none"], ["stage=256"], ["fused=0"],
               ["piece=16384"], ["piece=16384", "kernels=group"], ["kernels=exact"]]
    if DRIVER != "lavapipe":  # what a driver may read in its own way: half of this is compiling
        OPTIONS = OPTIONS[:2]

    def test_what_it_is(self):
        said = run("backends", "-v", "--json", "--trust")
        backend = next(b for b in json.loads(said.stdout)["backends"] if b["name"] == "vulkan")
        self.assertEqual(backend["devices"][0]["kind"], "software")

    def steps(self, model, *options):
        said = run(SO, tiny(model), *options, program=STEPS)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        told = re.search(r"recorded: .*, ([\d.]+) dispatches, .*; (\d+) submits for the prompt", said.stdout)
        print(model, *options, told[0], file=sys.stderr)
        return float(told[1]), int(told[2])

    def test_steps(self):
        """One submit a token, no memory after load, the reference's ids, a clone, an eviction."""
        self.steps("tiny-f32")
        for options in self.OPTIONS:
            self.steps("tiny-q4_1", *options)
        for options in ([], ["act=q8"], ["kernels=group", "features=int8dot", "act=q8"]):
            self.steps("tiny-q6_k", *options)

    def test_norms_on_the_way(self):
        """Groups norm few rows while they multiply: two dispatches less a layer of three."""
        self.assertEqual(self.steps("tiny-untied")[0] - self.steps("tiny-untied", "kernels=group")[0], 6)

    def test_long_submits_are_cut(self):
        """A submit has at most two million multiplications: more of them for a prompt, one for a token."""
        self.assertEqual(self.steps("odd-q4_1")[1], 1)
        self.assertGreater(self.steps("odd-q4_1", "work=2")[1], 2)

    def test_what_was_compiled_is_kept(self):
        """The host's store has it; what is damaged there is as good as nothing, and is written anew."""
        cache = tempfile.mkdtemp(dir=ROOM)

        def text():
            said = generate(tiny("tiny-q4_1"), "vulkan", XDG_CACHE_HOME=cache)
            self.assertEqual(said.returncode, 0, said.stderr)
            return said.stdout

        right = text()
        path, = pathlib.Path(cache, "fak", "artefacts").iterdir()
        kept, made = path.read_bytes(), path.stat().st_mtime_ns
        self.assertEqual(text(), right)
        self.assertEqual(path.stat().st_mtime_ns, made)  # it was good
        for damaged in (kept[:-3], kept[:-1] + bytes([kept[-1] ^ 1])):
            path.write_bytes(damaged)
            self.assertEqual(text(), right)
            self.assertEqual(path.read_bytes(), kept)

    def test_texts(self):
        for model, *more in (("tiny-f16",), ("tiny-f16", "--kv", "f16"), ("tiny-bf16",), ("tiny-untied",),
                             ("tiny-q4_0",), ("tiny-q4_k",), ("tiny-q8_0",), ("tiny-q8_0", "--act", "q8"),
                             ("tiny-q4_0", "--act", "q8"), ("tiny-q4_k", "--act", "q8")):
            right = generate(tiny(model), "cpu-ref", *more)
            said = generate(tiny(model), "vulkan", *more)
            self.assertEqual((said.returncode, said.stdout), (0, right.stdout), said.stderr)

    def test_no_room(self):
        said = generate(tiny("tiny-f32"), "vulkan", "-o", "memory=100000")
        self.assertNotEqual(said.returncode, 0)
        self.assertRegex(said.stderr, r"takes \d+ bytes of device memory; 100000 are free")

    def test_lost(self):
        said = generate(tiny("tiny-f32"), "vulkan", "-o", "lose-device=6")
        self.assertEqual(said.returncode, 1)
        self.assertIn("the device is lost", said.stderr)


class Opcheck(unittest.TestCase):
    def check(self, *options, only=()):
        said = run("opcheck", SO, "--trust", "-q", "--json", "-", *options, *only, *EXCEPT)
        evidence = json.loads(said.stdout)
        failed = [c for c in evidence["checks"] if c["verdict"] == "FAIL"]
        self.assertEqual(failed, [], options)
        self.assertEqual(said.returncode, 0)
        passed = [c for c in evidence["checks"] if c["verdict"] == "PASS"]
        print(DRIVER, *options, *only, f"{len(passed)} passed", file=sys.stderr)
        return evidence

    def test_all(self):
        self.assertEqual(self.check()["device"]["class"], "approx")


class Bits(unittest.TestCase):
    check = Opcheck.check

    def test_the_bits(self):
        """In the contract's order llvmpipe gives the reference's bits; SwiftShader flushes subnormals."""
        said = self.check("-o", "kernels=exact", only=["--rungs", "1,2,3"])
        self.assertEqual(said["device"]["class"], "reference" if DRIVER == "lavapipe" else "approx")

    def test_ops_of_groups(self):
        self.check("-o", "kernels=group", only=["--rungs", "1"])


class Ways(unittest.TestCase):
    check = Opcheck.check

    def test_kv_in_pieces(self):
        rungs = "1,3" if DRIVER == "lavapipe" else "1"
        for kernels in ("row", "group"):
            self.check("-o", "kernels=" + kernels, "-o", "piece=4096", only=["--rungs", rungs])

    def test_ops_of_groups(self):
        for features in ("none", "subgroup", "int8dot"):
            said = self.check("-o", "kernels=group", "-o", "features=" + features, only=["--rungs", "1"])
            self.assertEqual("subgroups of" in said["device"]["tier"], features == "subgroup")
            self.assertEqual("act_q8" in said["device"]["numerics"], features == "int8dot")

    def test_without_features(self):
        """What any driver runs."""
        said = self.check("-o", "features=none")["device"]
        self.assertNotRegex(said["tier"], "subgroups|int8")
        self.assertNotIn("act_q8", said["numerics"])


class Validation(unittest.TestCase):
    """Chromium's layer sees hazards from dispatch to dispatch; Debian's own does not."""

    def log_of(self, *options):
        log = os.path.join(ROOM, "log")
        layer = {"file_format_version": "1.2.0",
                 "layer": {"name": "VK_LAYER_KHRONOS_validation", "type": "GLOBAL", "library_path": LAYER,
                           "api_version": "1.3.250", "implementation_version": "1", "description": "it"}}
        with open(os.path.join(ROOM, "layer.json"), "w", encoding="utf-8") as out:
            json.dump(layer, out)
        with open(os.path.join(ROOM, "vk_layer_settings.txt"), "w", encoding="utf-8") as out:
            for line in ("validate_sync = true", "syncval_shader_accesses_heuristic = true",
                         "debug_action = VK_DBG_LAYER_ACTION_LOG_MSG", f"log_filename = {log}",
                         "report_flags = error,warn"):
                print(f"khronos_validation.{line}", file=out)
        said = run(SO, tiny("tiny-q4_1"), *options, program=STEPS, VK_LAYER_PATH=ROOM,
                   VK_LAYER_SETTINGS_PATH=ROOM, VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_validation")
        self.assertIn("Validation Layer Info", said.stdout)  # it was there
        with open(log, encoding="utf-8") as lines:
            return lines.read()

    def test_nothing_to_say(self):
        for options in ([], ["kernels=group"], ["kernels=group", "features=none"], ["fused=0"], ["stage=256"],
                        ["piece=16384"], ["act=q8"]):
            self.assertEqual(self.log_of(*options), "", options)

    def test_a_hazard_is_seen(self):
        self.assertIn("hazard detected", self.log_of("barriers=0"))


class Real(unittest.TestCase):
    model = os.environ.get("FAK_TEST_MODEL", "")

    def test_text(self):
        n = 16 if DRIVER == "lavapipe" else 4  # SwiftShader takes seconds for a token
        for act in ("f32", "q8"):
            right = generate(self.model, "cpu-ref", "--act", act, n=n)
            said = generate(self.model, "vulkan", "--act", act, n=n)
            self.assertEqual((said.returncode, said.stdout), (0, right.stdout), said.stderr)

    def test_every_position(self):
        if PART == "real" and DRIVER == "lavapipe":
            said = run("opcheck", SO, "--trust", "-m", self.model, "--rungs", "5", "--seconds", "1500", *EXCEPT)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def test_steps(self):
        if DRIVER == "lavapipe":
            said = run(SO, self.model, program=STEPS)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
            print(said.stdout, file=sys.stderr)
            eager, recorded = (float(us) for us in re.findall(r"([\d.]+) us of the calling", said.stdout))
            self.assertLess(2 * recorded, eager)  # a sixth on an idle machine


def missing():
    if not glob.glob(ICD):
        return f"{ICD} is not here"
    if PART == "validation" and not os.path.exists(LAYER):
        return f"{LAYER} is not here"
    if PART.startswith("real") and not Real.model:
        return "FAK_TEST_MODEL does not name the model"
    return ""


if __name__ == "__main__":
    if missing():
        print(f"vulkan on {DRIVER}: {missing()}; scripts/setup-vulkan installs the drivers")
        sys.exit(77)
    chosen = {"absent": "Absent", "tiny": "Tiny", "opcheck": "Opcheck", "bits": "Bits", "ways": "Ways",
              "validation": "Validation", "real": "Real", "real-short": "Real"}[PART]
    unittest.main(argv=[sys.argv[0], chosen], verbosity=2)
