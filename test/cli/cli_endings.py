#!/usr/bin/env python3
"""How a run ends: output that cannot be written, Ctrl-C, little memory.  Usage: see common.py."""
import os
import re
import resource
import signal
import subprocess
import time

from common import (
    EMULATOR, FAKRUN, KEYS, SO, TIMEOUT, Case, Result, contents, environment, long_model, main,
    make, model, room,
)


class Endings(Case):
    def commands(self):
        path = model("tiny-f32")
        return (["-m", path, "-p", "Hello"], ["-m", path, "-p", "Hello", "--json"],
                ["inspect", path], ["inspect", "--json", path], ["inspect", "--plan", path],
                ["tokenize", "-m", path, "-p", "Hello"],
                ["tokenize", "-m", path, "-p", "Hello", "--json"],
                ["backends"], ["backends", "--json"], ["--help"], ["inspect", "--help"])

    def assert_failed(self, args, **more):
        result = self.run_it(*args, **more)
        self.assertEqual(result.code, 1, args)
        self.assertTrue(result.err.splitlines()[-1:], f"{args}: no sentence")
        self.assertIn("written", result.err.splitlines()[-1])

    def test_a_full_disk(self):
        for args in self.commands():
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                self.assert_failed(args, stdout=full)

    def test_a_pipe_that_nobody_reads(self):
        for args in self.commands():
            with self.subTest(args=args):
                back, front = os.pipe()
                os.close(back)
                try:
                    self.assert_failed(args, stdout=front)
                finally:
                    os.close(front)

    def test_no_stdout_at_all(self):
        for args in self.commands():
            with self.subTest(args=args):
                self.assert_failed(args, stdout=None, preexec_fn=lambda: os.close(1))

    def start(self, *args):
        """A run that takes minutes.  Its pipes have no buffer here: communicate gets the rest."""
        return subprocess.Popen([*FAKRUN, "-m", long_model(), "--ctx", "100000", "-n", "1000000",
                                 "--ignore-eos", *args], env=environment(), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def end(self, process):
        try:
            out, err = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail("it goes on")
        return self.check(Result(process.returncode, out, err), "a long run")

    def test_a_reader_that_leaves(self):
        process = self.start("-p", "Hello", "-q")
        self.assertTrue(process.stdout.read(5))  # it streams
        process.stdout.close()
        process.stdout = None
        try:
            err = process.stderr.read()
            self.assertEqual(process.wait(TIMEOUT), 1)
        finally:
            process.kill()
            process.stderr.close()
        self.assertEqual(err.decode(), "fakrun: the result could not be written\n")

    def test_interrupted_while_it_writes(self):
        process = self.start("-p", "Hello")
        first = b""
        while len(first) < 40 and process.poll() is None:
            first += process.stdout.read(40)
        process.send_signal(signal.SIGINT)
        result = self.end(process)
        self.assertEqual(result.code, 130, result.err)
        text = first + result.bytes
        self.assertEqual(text[-1:], b"\n")
        whole = self.fine("-m", long_model(), "-p", "Hello", "-n", "20", "--ignore-eos", "--ctx", "100000")
        expected = whole.out[:-1].rstrip("\ufffd").encode()  # -n may have cut a character
        self.assertGreater(len(expected), 5)
        self.assertEqual(text[: len(expected)], expected)
        text.decode("utf-8")

    def test_interrupted_with_json(self):
        process = self.start("-p", "Hello", "--json")
        line = process.stderr.readline()  # the backend: it is about to begin
        self.assertIn(b"backend cpu-ref", line)
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        result = self.end(process)
        self.assertEqual(result.code, 130, result.err)
        self.assertEqual(set(result.json), KEYS)
        self.assertEqual(result.json["finish"], "stopped")
        self.assertGreater(len(result.json["ids"]), 1)

    def test_interrupted_while_it_reads_the_prompt(self):
        process = self.start("-f", room("long.txt", b"a " * 90000))
        process.stderr.readline()
        time.sleep(1)
        asked = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail("Ctrl-C is not heard before the prompt is done")
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - asked, 15)
        self.assertEqual(out.strip(), b"")

    def test_interrupted_before_it_works(self):
        """A prompt that does not come, a backend that is tried: nothing is to be finished."""
        for args in (["-m", model("tiny-f32"), "-f", "-"], ["tokenize", "-m", model("tiny-f32")],
                     ["opcheck", "-q", SO]):
            if EMULATOR and "opcheck" in args:
                continue
            process = subprocess.Popen([*FAKRUN, *args], env=environment(), stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            try:
                process.wait(5)
            finally:
                process.kill()
                out, err = process.communicate()
            self.assertEqual((process.returncode, out, err), (130, b"", b""), args)

    def test_interrupted_twice(self):
        process = self.start("-f", room("long.txt", b"a " * 90000))
        process.stderr.readline()
        time.sleep(1)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        process.communicate(timeout=15)
        self.assertIn(process.returncode, (130, -signal.SIGINT))

    def test_ignored_interrupts_stay_ignored(self):
        """As in a job that a shell script put into the background."""
        process = subprocess.Popen(
            [*FAKRUN, "-m", long_model(), "-p", "Hello", "-n", "300" if EMULATOR else "3000",
             "--ignore-eos"], env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.end(process).code, 0)

    def test_little_memory(self):
        """An answer, not an abort: half a gigabyte of address space, a context that wants more."""
        if b"asan" in contents(FAKRUN[-1]):
            self.skipTest("a sanitizer needs all of the address space")
        if EMULATOR:
            self.skipTest("an emulator needs all of the address space")
        room_bytes = 1 << 29

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (room_bytes, room_bytes))

        big = room("big.gguf")
        make(big, "--context", "1000000", "--layers", "4", "--kv-heads", "4", "--dtype", "f32")
        said = self.refused(2, ["-m", big, "-p", "x", "--ctx", "1000000"],
                            "a context of 1000000 needs ", "its address space limit has ",
                            "the largest context that fits is ", preexec_fn=limit)
        fits = int(re.search(r"fits is (\d+)", said.err)[1])
        self.fine("-m", big, "-p", "x", "-n", "1", "--ctx", str(fits), preexec_fn=limit)
        self.refused(2, ["-m", big, "-p", "x", "--ctx", str(2 * fits)], "fits", preexec_fn=limit)
        self.assertIn("its address space limit has",
                      self.fine("inspect", big, "--ctx", "1000", preexec_fn=limit).out)
        self.refused(2, ["-m", big, "-f", room("million.txt", b"!" * 1000001), "--ctx", "1000000"],
                     "prompt has 1000001 tokens; context is 1000000", preexec_fn=limit)  # no load
        os.unlink(big)


if __name__ == "__main__":
    main()
