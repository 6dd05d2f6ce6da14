"""What is run, by whom and in which order: ours, the peer, ours, the peer."""
import json
import os
import time

from . import children, install, report
from .children import Stop

SETTINGS = ["on", "off"]  # the peer's flash attention
LIMIT = 3600  # seconds that one measurement may take
BUSY_TOKENS = 8  # of the peer beside a busy process: it may decode less than one a second then
PHASES = ["prefill", "decode", "deep", "batch8", "load"]


class Ours:
    """fakrun bench."""

    def __init__(self, fakrun, backend, options):
        self.fakrun, self.backend, self.options = fakrun, backend, options
        self.env = dict(os.environ)
        plugins = fakrun.parent / "plugins"
        if plugins.is_dir():
            self.env["FAK_PLUGIN_PATH"] = str(plugins)

    def command(self, file, threads, kv, *more):
        settings = [f"threads={threads}"] * (self.backend == "cpu") + self.options
        return [self.fakrun, "bench", "-q", "-m", file, "--backend", self.backend, "--kv", kv,
                *[word for s in settings for word in ("-o", s)], *more, "--json", "-"]

    def evidence(self, *arguments):
        """Of a gate that failed, too."""
        command = self.command(*arguments)
        code, out, err = children.run(command, LIMIT, env=self.env)
        if not out:
            last = (err.strip().splitlines() or ["it said nothing"])[-1]
            raise Stop(f"fakrun ends with exit code {code} and says \"{last}\": "
                       f"{' '.join(map(str, command))}", 2 if code == 2 else 1)
        return json.loads(out)

    def gate(self, file, threads, kv):
        e = self.evidence(file, threads, kv, "--phase", "load", "--reps", "1")
        if e["gate"]["verdict"] != "PASS":
            raise Stop(f"{file.name} fails the gate, so its speed says nothing: "
                       f"{e['gate']['reason']}")
        return e["gate"]["positions"]

    def rows(self, file, threads, kv, phase, o):
        return self.evidence(
            file, threads, kv, "--no-gate", "--phase", phase, "--reps", str(o["reps"]),
            "--prefill", ",".join(map(str, o["prefill"])), "--decode", str(o["decode"]),
            "--depth", str(o["depth"]), "--batch", str(o["batch"]))["results"]

    def tensors(self, file):
        """Bytes of weights that a token reads: all, but of an own table of embeddings one row."""
        code, out, err = children.run([self.fakrun, "inspect", file, "--json"], 60, env=self.env)
        if code:
            raise Stop(f"fakrun inspect {file} fails: {err.strip()}")
        found = {t["name"]: t["bytes"] for t in json.loads(out)["tensors"]}
        untied = "output.weight" in found
        return sum(n for name, n in found.items() if not (untied and name == "token_embd.weight"))


class Peer:
    def rows(self, file, threads, flash_attn, phase, o):
        return install.ask("measure", file, phase, json.dumps(
            {**o, "threads": threads, "flash_attn": flash_attn}), seconds=LIMIT)["results"]


def asked(phase, a):
    """(fakrun bench's phase, options) of a phase of the report."""
    o = {"reps": a.reps, "prefill": a.prefill, "decode": a.decode, "depth": 0, "batch": a.batch}
    if phase == "deep":
        return "decode", {**o, "depth": a.deep}
    if phase == "batch8":
        return "batch", {**o, "decode": min(a.decode, 32)}
    return phase, {**o, "reps": 1} if phase == "load" else o


def values(phase, rows):
    """{(phase, tokens): best of the process's runs}; rss is that of the deep phase."""
    found = {}
    for r in rows:
        if r["phase"] in ("load", "ttft"):
            if r.get("what") != "loaded":
                found[r["phase"], None] = r["min"]
        elif r["phase"] == "memory":
            if phase == "deep" and "peak" in r["what"]:
                found["rss", None] = r["max"]
        else:
            found[phase, r["tokens"]] = r["max"]
    return found


def sides(key, found):
    """{setting: values of the rounds}, such that more is better, of those that ran in all."""
    less = key[0] in report.LESS_IS_BETTER
    rounds = max(map(len, found.values()))
    return {s: [1 / v[key] if less else v[key] for v in each] for s, each in found.items()
            if len(each) == rounds}


class Budget:
    """Shares out the seconds of a quick run: each phase may use its part of what is left."""

    def __init__(self, seconds, phases):
        self.end = seconds and time.monotonic() + seconds
        self.left = phases

    def phase(self):
        """When the next phase has to end; None: whenever it has."""
        part = self.end and time.monotonic() + (self.end - time.monotonic()) / self.left
        self.left -= 1
        return part


class Rounds:
    """Of one file with one number of threads."""

    def __init__(self, ours, peer, args, budget, read_loop, file, threads):
        self.ours, self.peer, self.a, self.budget = ours, peer, args, budget
        self.read_loop = read_loop
        self.file, self.threads = file, threads
        self.shares = []

    def say(self, phase, text):
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}"
        install.say(f"{self.file.name}, {threads}, {phase}: {text}")

    def phase(self, phase):
        """Items of the report."""
        kind, o = asked(phase, self.a)
        mine, theirs, loops, settings = [], {s: [] for s in SETTINGS}, [], list(SETTINGS)
        until = self.budget.phase()
        for n in range(self.a.rounds):
            start = time.monotonic()
            if phase == "decode" and self.threads == 1:
                loops.append(self.read_loop(self.file))
            mine.append(values(phase, self.ours.rows(self.file, self.threads, self.a.kv, kind, o)))
            for s in settings:
                theirs[s].append(values(phase, self.peer.rows(self.file, self.threads, s, kind, o)))
            latest = {s: theirs[s][-1] for s in settings}
            self.say(phase, f"round {n + 1}: {told(mine[-1], latest)}")
            if self.a.quick and not n:  # the better one of each measure, from here on
                settings = sorted({report.better_setting(sides(k, theirs)) for k in mine[0]})
            if until and 2 * time.monotonic() - start > until:  # another like it takes too long
                break
        beside = {}
        if phase == "deep" or phase != "load" and not self.a.quick:
            other = "f32" if self.a.kv == "f16" else "f16"
            beside = values(phase, self.ours.rows(self.file, self.threads, other, kind, o))
        items = [self.item(k, mine, theirs, o, beside) for k in mine[0]]
        if loops:
            self.shares.append(self.share(items[0], mine, theirs, loops))
        return items

    def item(self, key, mine, theirs, o, beside):
        setting = report.better_setting(sides(key, theirs))
        more = {"unit": {"rss": "bytes", "load": "s", "ttft": "s"}.get(key[0], "tok/s"),
                "flash_attn": setting, "kv": self.a.kv}
        if key[1]:
            more["tokens"] = key[1]
        if key[0] in ("decode", "deep"):
            more["depth"] = o["depth"]
        if key[0] == "batch8":
            more["batch"] = o["batch"]
        if key in beside:
            more["ours_kv_" + ("f32" if self.a.kv == "f16" else "f16")] = beside[key]
        return report.item(self.file.name, self.threads, key[0], [v[key] for v in mine],
                           [v[key] for v in theirs[setting]], **more)

    def share(self, decode, mine, theirs, loops):
        """Of the read loop's speed in the same round."""
        weights = self.ours.tensors(self.file)
        key = ("decode", decode["tokens"])
        mine = [v[key] * weights / loop for v, loop in zip(mine, loops)]
        theirs = [v[key] * weights / loop for v, loop in zip(theirs[decode["flash_attn"]], loops)]
        i = report.item(self.file.name, 1, "bandwidth", mine, theirs, unit="share",
                        weights=weights, loop=report.median(loops))
        return {**i, "ours_low": min(mine), "ours_high": max(mine)}


def told(mine, theirs):
    """One line of a round."""
    parts = []
    for key, value in mine.items():
        unit = {"rss": "MB", "load": "s", "ttft": "s"}.get(key[0], "tok/s")
        scale, digits = (1e6, 0) if unit == "MB" else (1, 4 if unit == "s" else 1)
        peers = ", ".join(f"{each[key] / scale:.{digits}f} ({s})" for s, each in theirs.items())
        parts.append(f"{key[0]}{f' {key[1]}' if key[1] else ''} {value / scale:.{digits}f} beside "
                     f"{peers} {unit}")
    return "; ".join(parts)


def busy(ours, peer, args, machine, file):
    """Decoding with 1 and with 2 threads, beside one process that keeps a core busy; medians of the
    runs, as the best would be the ones that the busy process was not in the way of."""
    o = {**asked("decode", args)[1], "reps": max(3, args.reps)}
    few = {**o, "decode": min(args.decode, BUSY_TOKENS)}
    mine, theirs = {1: [], 2: []}, {1: [], 2: []}
    spinning = children.start([machine, "spin"])
    try:
        time.sleep(0.3)
        for _ in range(args.rounds):
            for rows, who, setting, how in ((mine, ours, args.kv, o), (theirs, peer, "off", few)):
                for threads in (1, 2):
                    found = who.rows(file, threads, setting, "decode", how)
                    rows[threads] += [r["median"] for r in found if r["phase"] == "decode"]
            if spinning.poll() is not None:
                raise Stop("the busy process has ended before it was told to")
            install.say(f"{file.name}, busy: 1 and 2 threads {mine[1][-1]:.1f} {mine[2][-1]:.1f} "
                        f"beside {theirs[1][-1]:.1f} {theirs[2][-1]:.1f} tok/s")
    finally:
        children.end(spinning)
    ratio = [[two / one for one, two in zip(side[1], side[2])] for side in (mine, theirs)]
    return report.item(file.name, 2, "busy", *ratio, unit="2 threads / 1",
                       ours_tok_s=[report.median(mine[n]) for n in (1, 2)],
                       peer_tok_s=[report.median(theirs[n]) for n in (1, 2)])
