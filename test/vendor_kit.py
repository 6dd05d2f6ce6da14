#!/usr/bin/env python3
"""vendor_kit.py MESON BUILD_DIR MODEL: what meson install gives a vendor, used as the guide says.

Installs into a temporary folder and moves it; then runs the very lines of abi/README.md, "From
nothing to a passing plugin", in a home of its own for each way to build, with the installed header
alone.  Homes have spaces in their names.
"""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MESON, BUILD, MODEL = sys.argv[1], *(pathlib.Path(a).resolve() for a in sys.argv[2:4])
ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOM = pathlib.Path(tempfile.mkdtemp(prefix="fak-test-kit-"))
PREFIX = ROOM / "moved"
FILES = {"acme.c", "Makefile", "meson.build", "CMakeLists.txt", "backend.map", "README.md"}
WAYS = {"make": "make", "meson": "meson setup build &&", "cmake": "cmake -B build &&", "cc": "cc "}
FMA = "-O3 -mfma" if platform.machine() == "x86_64" else "-O3"  # others have it anyway


def guide():
    """The commands of the guide, without comments, after those that install fak."""
    text = (PREFIX / "share/doc/fak/abi.md").read_text()
    section = re.search(r"^## From nothing to a passing plugin$(.*?)^## ", text, re.M | re.S)[1]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    lines = [re.sub(r"\s+# .*", "", line) for line in lines]
    return lines[next(i for i, line in enumerate(lines) if line.startswith("fak-new-backend")):]


def lines_of(*starts):
    return [line for line in guide() if line.startswith(starts)]


def environment(**more):
    """A vendor's: nothing of this build, but the folders that the guide names."""
    kept = ("LD_LIBRARY_PATH", "ASAN_OPTIONS", "TMPDIR")
    env = {k: os.environ[k] for k in kept if k in os.environ}
    env.update(PATH=f"{PREFIX / 'bin'}:{os.environ['PATH']}", LANG="C", HOME=str(ROOM))
    pc, = PREFIX.glob("**/fak.pc")
    return {**env, "PKG_CONFIG_PATH": str(pc.parent), **more}


def run_it(command, cwd=ROOM, shell=("bash", "-euo", "pipefail", "-c"), **env):
    return subprocess.run([*shell, command], cwd=cwd, env=environment(**env), text=True,
                          encoding="utf-8", errors="surrogateescape", timeout=300,
                          capture_output=True, check=False)


def setUpModule():
    env = {k: v for k, v in os.environ.items() if k != "DESTDIR"}
    subprocess.run([MESON, "install", "--no-rebuild", "--quiet", "-C", BUILD, "--destdir",
                    ROOM / "first"], check=True, env=env)
    program, = (ROOM / "first").glob("**/bin/fakrun")
    program.parent.parent.rename(PREFIX)


def tearDownModule():
    shutil.rmtree(ROOM)


class Kit(unittest.TestCase):
    maxDiff = None

    def fine(self, command, **more):
        said = run_it(command, **more)
        self.assertEqual(said.returncode, 0, f"{command}\n{said.stdout}{said.stderr}")
        return said.stdout

    def refused(self, command, *parts):
        said = run_it(command)
        self.assertEqual((said.returncode, said.stdout), (2, ""), command)
        for part in parts:
            self.assertIn(part, said.stderr.splitlines()[-1])

    def scaffold(self, home, lane):
        """The folder of a plugin just written, as the guide writes it."""
        home.mkdir()
        shutil.copy(MODEL, home / "tiny.gguf")
        line, = lines_of("fak-new-backend")
        self.fine(f"{line} --lane {lane}", HOME=str(home))
        return home / "acme"

    # ---- what is installed ----

    def test_pkg_config(self):
        ask = lambda what: self.fine(f"pkg-config {what} fak").strip()  # noqa: E731
        said = json.loads(self.fine("fakrun backends --json"))
        self.assertEqual(ask("--variable=abi_version"), ".".join(map(str, said["abi"])))
        self.assertTrue(ask("--variable=plugindir").endswith("/fak/backends"))
        folder = pathlib.Path(re.fullmatch("-I(.*)", ask("--cflags"))[1])
        self.assertEqual([p.name for p in folder.iterdir()], ["fak_backend.h"])
        self.assertTrue(folder.resolve().is_relative_to(PREFIX))

    def test_the_template_is_not_installed(self):
        names = [path.name for path in PREFIX.glob("**/*.so")]
        self.assertNotIn("fak-backend-template.so", names)

    # ---- what is written ----

    def test_written(self):
        for lane in ("eager", "graph"):
            self.fine(f"fak-new-backend acme {lane}/deep --lane {lane}")
            self.fine(f"{ROOT}/scripts/new-backend acme {lane}/tree --lane {lane}")
            written = {p.name: p.read_text() for p in (ROOM / lane / "deep").iterdir()}
            self.assertEqual(set(written), FILES)
            for name, text in written.items():
                self.assertEqual(text, (ROOM / lane / "tree" / name).read_text())
                for word in ("template", "LANE", "@"):
                    self.assertNotIn(word, text.replace("$@", ""), f"{lane}: {name}")
            self.assertEqual(lane == "graph", "FAK_CAP_GRAPH_COMPILE" in written["acme.c"])

    def test_refusals(self):
        command = "fak-new-backend"
        self.assertIn("examples:", self.fine(f"{command} --help"))
        for name in ("Acme", "a_b", "a.c", "''", "a/b", "'a b'", "../x"):
            self.refused(f"{command} {name} no", "a backend's name is of a to z, 0 to 9 and -")
        self.refused(f"{command} {'x' * 32} no", "32 characters; at most 31")
        self.refused(f"{command} cpu-ref no", "linked in")
        self.refused(f"{command} acme no --lane fast", "fast")
        self.refused(f"{command} acme", "DIR")
        self.assertFalse((ROOM / "no").exists())
        (ROOM / "file").write_text("")
        self.refused(f"{command} acme file", "is no folder")

    def test_nothing_is_replaced(self):
        folder = ROOM / "mine"
        for name in sorted(FILES):
            folder.mkdir()
            (folder / name).write_text("mine")
            self.refused("fak-new-backend acme mine", f" has {name} already")
            self.assertEqual({p.name: p.read_text() for p in folder.iterdir()}, {name: "mine"})
            shutil.rmtree(folder)
        self.fine("fak-new-backend acme mine")
        self.refused("fak-new-backend acme mine", *FILES)
        self.refused("fak-new-backend other mine", "has Makefile, meson.build")

    # ---- from nothing to a passing plugin ----

    def check_built(self, folder):
        """The one header of fak, one exported symbol, bound at once and to itself; only libc."""
        so = "fak-backend-acme.so"
        used = self.fine("cc -MM $(pkg-config --cflags fak) acme.c", cwd=folder)
        used = [pathlib.Path(p).resolve() for p in used.replace("\\\n", " ").split()[2:]]
        self.assertEqual(used, [PREFIX / "include/fak_backend.h"])
        exported = self.fine(f"nm -D --defined-only {so}", cwd=folder)
        names = [line.split()[-1] for line in exported.splitlines()]
        self.assertEqual(names, ["fak_backend_entry_v1"])
        dynamic = self.fine(f"readelf -Wd {so}", cwd=folder)
        self.assertIn("SYMBOLIC", dynamic)
        self.assertRegex(dynamic, r"FLAGS.*NOW")
        self.assertEqual(set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) - {"libc.so.6"}, set())

    def check_answers(self, home, folder):
        """The guide's prompts, and what the host says that it did itself."""
        use = lines_of("fakrun -m", "mkdir", "export", "fakrun backends")
        prompts = [line for line in use if line.startswith("fakrun -m")]
        self.assertEqual(len(prompts), 3)
        for i, line in enumerate(prompts):
            use[use.index(line)] = f"{line} > said-{i}"
        self.fine("\n".join(use), cwd=folder, HOME=str(home))
        said = [(folder / f"said-{i}").read_bytes() for i in range(3)]
        self.assertGreater(len(said[2]), 8)
        self.assertEqual([said[0], said[1]], [said[2]] * 2)
        results = {}
        for name in ("acme", "cpu-ref"):
            results[name] = json.loads(self.fine(
                f"fakrun -m {MODEL} -p 'Hello the world' -n 24 --ignore-eos --dtype f32 --act f32 "
                f"--json --backend {name}", FAK_PLUGIN_PATH=str(home / "backends")))
        self.assertEqual(results["acme"]["text"], results["cpu-ref"]["text"])
        self.assertEqual(results["acme"]["ids"], results["cpu-ref"]["ids"])
        self.assertEqual(results["acme"]["backend"]["class"], "approx")
        for side in ("native", "host"):
            self.assertGreater(results["acme"]["ops"][side], 0)

    def check_way(self, way, lane):
        home = ROOM / f"home {way} {lane}"
        folder = self.scaffold(home, lane)
        line, = lines_of(WAYS[way])
        self.fine(line, cwd=folder)
        self.check_built(folder)
        self.check_answers(home, folder)
        return home, folder

    def test_ways(self):
        for lane in ("eager", "graph"):
            for way in WAYS:
                with self.subTest(way=way, lane=lane):
                    self.check_way(way, lane)

    def test_flags(self):
        """No multiply-add is fused, what the source exports stays inside, nothing is undefined."""
        for way, start in WAYS.items():
            folder = self.scaffold(ROOM / f"flags {way}", "eager")
            line, = lines_of(start)
            with open(folder / "acme.c", "a", encoding="utf-8") as file:
                file.write("FAK_EXPORT extern int leaked;\nint leaked = 1;\n")
            self.fine(line.replace("cc -O3", f"cc {FMA}"), cwd=folder, CFLAGS=FMA)
            self.fine(f"{ROOT}/test/no_fma.sh $(command -v objdump) *.so", cwd=folder)
            self.assertNotIn("leaked", self.fine("nm -D fak-backend-acme.so", cwd=folder))
            with open(folder / "acme.c", "a", encoding="utf-8") as file:
                file.write("int gone(void);\nint asks(void);\nint asks(void) { return gone(); }\n")
            shutil.rmtree(folder / "build", ignore_errors=True)
            said = run_it(line, cwd=folder)
            self.assertNotEqual(said.returncode, 0, way)
            self.assertRegex(said.stdout + said.stderr, "undefined reference to .gone")

    def test_the_header_alone(self):
        header = ROOM / "header"
        header.mkdir()
        shutil.copy(PREFIX / "include/fak_backend.h", header)
        for way in (f"make FAK_INCLUDE={header}",
                    f"cmake -B build -DFAK_INCLUDE={header} && cmake --build build",
                    f"meson setup build -Dc_args=-I{header} && meson compile -C build"):
            folder = self.scaffold(ROOM / f"alone {way.split()[0]}", "eager")
            self.fine(way, cwd=folder, PKG_CONFIG_PATH="", PKG_CONFIG_LIBDIR="/nonexistent")
            self.assertEqual(len(list(folder.glob("**/fak-backend-acme.so"))), 1)

    def test_no_header(self):
        for way in ("make", "cmake -B build", "meson setup build"):
            folder = self.scaffold(ROOM / f"without {way}", "eager")
            said = run_it(way, cwd=folder, PKG_CONFIG_PATH="", PKG_CONFIG_LIBDIR="/nonexistent")
            self.assertNotEqual(said.returncode, 0)
            self.assertRegex(said.stdout + said.stderr, r"no fak\.pc: set PKG_CONFIG_PATH to its "
                             r"folder, or .* to\s+fak_backend\.h's")

    def test_make_install(self):
        folder = self.scaffold(ROOM / "install", "eager")
        self.fine("make && make install DESTDIR=$PWD/there", cwd=folder)
        found, = (folder / "there").glob("**/fak-backend-acme.so")
        self.assertTrue(str(found.resolve().parent).endswith("/fak/backends"))

    def test_opcheck(self):
        for way, lane in (("make", "eager"), ("meson", "graph")):
            home = ROOM / f"opcheck {lane}"
            folder = self.scaffold(home, lane)
            self.fine(lines_of(WAYS[way])[0], cwd=folder)
            self.fine(lines_of("fakrun opcheck")[0], cwd=folder)

    def test_non_reference(self):
        """Attention stays on the host: the template is no accelerator."""
        folder = self.scaffold(ROOM / "required", "eager")
        self.fine("make", cwd=folder)
        said = run_it(f"fakrun bench -m {MODEL} --backend-path ./fak-backend-acme.so "
                      "--require-non-reference --prefill 16 --decode 16", cwd=folder)
        self.assertEqual(said.returncode, 1, said.stderr)
        self.assertRegex(said.stderr.splitlines()[-1],
                         "acme left 0 matmuls and [1-9][0-9]* attention")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
