#!/usr/bin/env python3
"""real.py FAKRUN DATA_DIR [short]: the real model through the command line, as a user runs it.

FAK_TEST_MODEL names SmolLM2-135M-Instruct.Q4_1.gguf; without it: exit 77.  Checks the oracle's ids,
that Paris is the answer, and the peak memory.
"""
import json
import os
import pathlib
import sys
import unittest

FAKRUN, DATA = sys.argv[1], pathlib.Path(sys.argv[2])
SHORT = "short" in sys.argv[3:]
MODEL = os.environ.get("FAK_TEST_MODEL")
ORACLE = json.loads((DATA / "oracle_smollm2.json").read_text())["prompts"]


def run(text, *options):
    """(the JSON object that fakrun prints, peak resident bytes of that process)."""
    down, up = os.pipe()
    pid = os.fork()
    if pid == 0:
        source = os.memfd_create("prompt")
        os.write(source, text.encode())
        os.lseek(source, 0, os.SEEK_SET)
        os.dup2(source, 0)
        os.dup2(up, 1)
        os.closerange(3, 64)
        os.environ.pop("MALLOC_PERTURB_", None)  # meson's: makes calloc touch every page
        os.execv(FAKRUN, [FAKRUN, "-m", MODEL, "-f", "-", "--json", "-q", *options])
    os.close(up)
    with os.fdopen(down, "rb") as out:
        printed = out.read()
    _, status, usage = os.wait4(pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise AssertionError(f"fakrun exited with {os.waitstatus_to_exitcode(status)}")
    return json.loads(printed), usage.ru_maxrss * 1024


class Real(unittest.TestCase):
    def test_f32_ids(self):
        """--dtype f32 gives the oracle's 64 ids."""
        for name in ["prose", "chat"] if SHORT else ORACLE:
            want = ORACLE[name]
            got, _ = run(want["text"], "--dtype", "f32", "--temp", "0", "-n", "64", "--ignore-eos")
            self.assertEqual(got["prompt_ids"], want["prompt_ids"], name)
            self.assertEqual(got["ids"], want["greedy_ids"], name)
            self.assertEqual(got["finish"], "length", name)
            self.assertEqual(got["ops"]["host"], 0, name)

    def test_chat(self):
        """The file's own dtype answers the oracle's question and stops by itself."""
        got, _ = run(ORACLE["chat"]["text"], "-n", "64")
        self.assertEqual((got["text"], got["finish"]), ("The capital of France is Paris.", "eos"))

    def test_fused_is_the_same(self):
        """Fused ops give the bits of their literal sequences."""
        plain, _ = run(ORACLE["code"]["text"], "-n", "32")
        fused, _ = run(ORACLE["code"]["text"], "-n", "32", "-o", "fused=1")
        self.assertEqual(plain["ids"], fused["ids"])
        self.assertLess(fused["ops"]["native"], plain["ops"]["native"])

    def test_memory(self):
        """Peak: the file, the kv that was written, and at most 60 MB."""
        got, peak = run(ORACLE["prose"]["text"], "--ctx", "2048", "-n", "64", "--ignore-eos")
        positions = len(got["prompt_ids"]) + len(got["ids"])
        kv = positions * 30 * 2 * 192 * 4
        bound = os.path.getsize(MODEL) + kv + 60_000_000
        print(f"peak {peak / 1e6:.1f} MB of {bound / 1e6:.1f} MB allowed")
        self.assertLess(peak, bound)


if __name__ == "__main__":
    if not MODEL:
        print("skipped: FAK_TEST_MODEL does not name the model (scripts/fetch-model)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
