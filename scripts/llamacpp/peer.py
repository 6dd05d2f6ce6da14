"""The peer: llama.cpp through the low-level calls of llama-cpp-python.  Runs in its own venv.

usage: peer.py about
       peer.py quantize INPUT OUT TYPE THREADS
       peer.py measure FILE PHASE '{"threads": 1, "flash_attn": "on", ...}'

measure prints {"results": [...]} with the rows of fakrun bench --json.  As in llama.cpp's own
bench: micro-batches of 512 rows, keys and values in F16, a context just large enough, random
tokens, one run before the clock; what is timed is llama_decode and the wait for it, nothing that
picks a token.
"""
import ctypes
import json
import os
import random
import statistics
import sys
import time

import numpy as np
import llama_cpp
import llama_cpp.llama_cpp as L

PROMPT = 8  # tokens of the prompt whose first token is timed; fakrun bench takes as many
FTYPES = {"f32": L.LLAMA_FTYPE_ALL_F32, "f16": L.LLAMA_FTYPE_MOSTLY_F16,
          "q8_0": L.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_0": L.LLAMA_FTYPE_MOSTLY_Q4_0}
now = time.perf_counter


@L.llama_log_callback
def log(level, text, _):
    if level == 4:  # errors
        print(text.decode("utf-8", "replace"), end="", file=sys.stderr)


def peak_bytes():
    """Of this process, not of the one that it was forked from."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next(x for x in status if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Model:
    def __init__(self, file, o):
        self.o = o
        self.model = L.llama_model_load_from_file(file.encode(), L.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {file}")
        self.vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model))
        self.batch = L.llama_batch_init(512, 0, 1)
        self.random = random.Random(0)

    def open(self, n_ctx, sequences=1):
        p = L.llama_context_default_params()
        p.n_ctx, p.n_seq_max, p.swa_full = n_ctx, sequences, False
        p.n_threads = p.n_threads_batch = self.o["threads"]
        p.flash_attn_type = {"off": 0, "on": 1}[self.o["flash_attn"]]
        self.ctx = L.llama_init_from_model(self.model, p)
        if not self.ctx:
            sys.exit("llama.cpp cannot create a context")
        self.memory = L.llama_get_memory(self.ctx)

    def tokens(self, n):
        return [self.random.randrange(self.vocab) for _ in range(n)]

    def step(self, tokens, pos, many=False):
        """Tokens of sequence 0 from pos, logits of the last; many: one of each, all at pos."""
        b = self.batch
        b.n_tokens = len(tokens)
        for i, t in enumerate(tokens):
            b.token[i], b.pos[i], b.n_seq_id[i] = t, pos if many else pos + i, 1
            b.seq_id[i][0] = i if many else 0
            b.logits[i] = many or i + 1 == len(tokens)
        if L.llama_decode(self.ctx, b):
            sys.exit("llama_decode failed")
        L.llama_synchronize(self.ctx)

    def feed(self, tokens):
        for i in range(0, len(tokens), 512):
            self.step(tokens[i:i + 512], i)

    def cut(self, length):
        if not L.llama_memory_seq_rm(self.memory, -1, length, -1):
            sys.exit("llama.cpp cannot cut its kv cache back")

    def argmax(self):
        row = np.ctypeslib.as_array(L.llama_get_logits_ith(self.ctx, -1), (self.vocab,))
        return int(row.argmax())


def row(phase, samples, **more):
    return {"phase": phase, "median": statistics.median(samples), "min": min(samples),
            "max": max(samples), **more}


def rates(o, tokens, before, run):
    """Tokens a second of `reps` runs, after one without a clock."""
    found = []
    for _ in range(o["reps"] + 1):
        before()
        start = now()
        run()
        found.append(tokens / (now() - start))
    return found[1:]


def load(file, o):
    start = now()
    m = Model(file, o)
    m.open(max(PROMPT, *o["prefill"]))
    loaded = now()
    m.step(m.tokens(PROMPT), 0)
    m.argmax()
    return [row("load", [loaded - start]), row("ttft", [now() - start], what="with load")]


def prefill(file, o):
    m = Model(file, o)
    m.open(max(o["prefill"]))
    rows = []
    for n in o["prefill"]:
        tokens = m.tokens(n)
        rows.append(row("prefill", rates(o, n, lambda: m.cut(0), lambda: m.feed(tokens)), tokens=n))
    return rows


def decode(file, o):
    m, depth, n = Model(file, o), o["depth"], o["decode"]
    m.open(depth + n)
    m.feed(m.tokens(depth))
    tokens = m.tokens(n)

    def run():
        for i, t in enumerate(tokens):
            m.step([t], depth + i)

    return [row("decode", rates(o, n, lambda: m.cut(depth), run), tokens=n, depth=depth)]


def batch(file, o):
    m, several, steps = Model(file, o), o["batch"], o["decode"]
    m.open(several * steps, several)
    tokens = [m.tokens(several) for _ in range(steps)]

    def run():
        for i, each in enumerate(tokens):
            m.step(each, i, many=True)

    return [row("batch", rates(o, several * steps, lambda: m.cut(0), run), tokens=steps,
                batch=several, depth=0)]


def measure(file, phase, options):
    """Peak memory is told less what Python and the library alone had before the model."""
    base = peak_bytes()
    results = {"load": load, "prefill": prefill, "decode": decode, "batch": batch}[phase](
        file, json.loads(options))
    peak = peak_bytes() - base
    return {"results": results + [row("memory", [peak], what="peak of the process")]}


def quantize(source, out, kind, threads):
    """With llama.cpp's own quantiser, which is told to take a quantised source."""
    p = L.llama_model_quantize_default_params()
    p.ftype, p.allow_requantize, p.nthread = FTYPES[kind], True, int(threads)
    part = out + ".part"
    try:
        if L.llama_model_quantize(source.encode(), part.encode(), ctypes.byref(p)):
            sys.exit(f"llama.cpp cannot make {kind} of {source}")
        os.replace(part, out)
    finally:
        if os.path.exists(part):
            os.remove(part)
    return {"bytes": os.path.getsize(out)}


def about():
    def text(name):
        call = getattr(L._lib, name)
        call.restype = ctypes.c_char_p
        return call().decode()

    return {"llama_cpp_python": llama_cpp.__version__, "ggml": text("ggml_version"),
            "commit": text("ggml_commit"), "system": L.llama_print_system_info().decode()}


if __name__ == "__main__":
    L.llama_log_set(log, None)
    L.llama_backend_init()
    print(json.dumps({"about": about, "quantize": quantize, "measure": measure}[sys.argv[1]](
        *sys.argv[2:])))
