"""What the files beside it share: fakrun run as a user would, on tiny models.

usage: test/cli/cli_X.py FAKRUN PLUGINS_DIR MODELS_DIR [unittest's arguments]
PLUGINS_DIR has fak-backend-cpu-ref.so.  MODELS_DIR has a tiny-DTYPE for each of DTYPES and K_DTYPES
(scripts/make-model --dtype; those of K are 256 wide, as wide-f32 is), big-f32 and so on
(--big-endian), and tiny-untied (--untied --layers 3 --dtype f32), with or without .gguf.
"""
import atexit
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
MAKE_MODEL = os.path.join(HERE, "..", "..", "scripts", "make-model")
DTYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"]
K_DTYPES = ["q4_k", "q5_k", "q6_k"]
KEYS = {"prompt_ids", "ids", "text", "finish", "backend", "timing", "ops"}
TIMEOUT = 120  # seconds, of a run that should take milliseconds; sanitizers are slow

if len(sys.argv) < 4:
    sys.exit(__doc__)
# What a shell starts in the background ignores Ctrl-C, and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)
PROGRAM, PLUGINS, MODELS = (os.path.abspath(a) for a in sys.argv[1:4])
EMULATOR = shlex.split(os.environ.get("MESON_EXE_WRAPPER", ""))  # where this machine cannot run it
FAKRUN = [shutil.which(EMULATOR[0]), *EMULATOR[1:], PROGRAM] if EMULATOR else [PROGRAM]
SO = os.path.join(PLUGINS, "fak-backend-cpu-ref.so")  # the reference as a file
ROOM = tempfile.mkdtemp(prefix="fak-test-cli-")  # a folder of our own
atexit.register(shutil.rmtree, ROOM)


def make(path, *options):
    subprocess.run([sys.executable, MAKE_MODEL, path, *options], check=True)


def long_model():
    """A context in which a run takes minutes; made once."""
    path = os.path.join(ROOM, "long.gguf")
    if not os.path.exists(path):
        make(path, "--context", "200000", "--dtype", "f32")
    return path


def model(name):
    path = os.path.join(MODELS, name + ".gguf")
    return path if os.path.exists(path) else os.path.join(MODELS, name)


def room(name, data=None):
    """The path of a file in ROOM, written first when data is given."""
    path = os.path.join(ROOM, name)
    if data is not None:
        with open(path, "wb") as file:
            file.write(data)
    return path


def text(data):
    data = data if isinstance(data, bytes) else data.encode()
    return struct.pack("<Q", len(data)) + data


def container(values, tensors=()):
    """A container; values: (key, type, packed), tensors: names of one F32 each."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    for key, kind, packed in values:
        head += text(key) + struct.pack("<I", kind) + packed
    for i, name in enumerate(tensors):
        head += text(name) + struct.pack("<IQIQ", 1, 1, 0, 32 * i)
    return head + bytes(-len(head) % 32) + b"\0\0\x80\x3f".ljust(32, b"\0") * len(tensors)


def without_room(printed):
    """What is printed, less how much memory the machine has at the moment."""
    return re.sub(rb"(has |\"there\": )[\d.]+( .?B)?", rb"\1", printed)


def environment(**more):
    """What every run gets: nothing of ours but what is asked for (None takes away)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("FAK_", "LC_", "LANG"))}
    env.update({k: v for k, v in more.items() if v is not None})
    for key in [k for k, v in more.items() if v is None]:
        env.pop(key, None)
    return env


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class Result:
    def __init__(self, code, out, err):
        self.code, self.bytes = code, out
        self.err = err.decode("utf-8", "backslashreplace")

    @property
    def out(self):
        return self.bytes.decode("utf-8")  # strictly: what is printed is UTF-8

    @property
    def json(self):
        assert self.bytes.endswith(b"\n") and self.bytes.count(b"\n") == 1, self.bytes
        return json.loads(self.bytes)


class Case(unittest.TestCase):
    maxDiff = None

    def check(self, result, args):
        """What holds for every run."""
        said = f"{args}: exit {result.code}\n{result.err}"
        self.assertGreaterEqual(result.code, 0, said)  # no signal ended it
        for line in result.err.splitlines():
            self.assertTrue(line.startswith("fakrun: "), said)
            self.assertNotIn("(null)", line)
        self.assertTrue(not result.err or result.err.endswith("\n"), said)
        return result

    def run_it(self, *args, env=None, stdin=b"", timeout=TIMEOUT, **more):
        more.setdefault("stdout", subprocess.PIPE)
        done = subprocess.run([*FAKRUN, *args], env=env or environment(), input=stdin,
                              stderr=subprocess.PIPE, timeout=timeout, check=False, **more)
        return self.check(Result(done.returncode, done.stdout or b"", done.stderr), args)

    def fine(self, *args, **more):
        result = self.run_it(*args, **more)
        self.assertEqual(result.code, 0, f"{args}\n{result.err}")
        return result

    def refused(self, code, args, *parts, **more):
        """The code, nothing on standard output, and a last sentence that has all the parts."""
        result = self.run_it(*args, **more)
        self.assertEqual(result.code, code, f"{args}\n{result.err}")
        self.assertEqual(result.bytes, b"", args)
        self.assertTrue(result.err, f"{args}: no sentence")
        for part in parts:
            self.assertIn(part, result.err.splitlines()[-1])
        return result

    def generate(self, *args, name="tiny-f32", **more):
        """The JSON object of a generation."""
        result = self.fine("-m", model(name), "--json", "--ignore-eos", *args, **more)
        return result.json


def main():
    for path in [PROGRAM, SO, model("tiny-untied")] + [model("tiny-" + d) for d in DTYPES]:
        if not os.path.exists(path):
            sys.exit(f"cli: there is no {path}")
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
