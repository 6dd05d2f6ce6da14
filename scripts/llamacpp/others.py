"""What else the processors did while this script measured."""
import os
import time

QUIET = 0.1  # cores; with more taken by others the figures are no result


def cores(before, after, tick):
    """(by other processes, by the hypervisor), in cores, between two moments."""
    wall, own = (after[k] - before[k] for k in ("wall", "own"))
    busy, stolen = ((after[k] - before[k]) / tick for k in ("busy", "stolen"))
    return max(0.0, busy - own) / wall, stolen / wall


def moment():
    """Ticks of all processors since the machine started (proc(5): user nice system idle iowait irq softirq
    steal), and seconds of this process and of its children that have ended."""
    with open("/proc/stat", encoding="ascii") as f:
        user, nice, system, _, _, irq, soft, stolen = map(int, f.readline().split()[1:9])
    return {"wall": time.monotonic(), "own": sum(os.times()[:4]),
            "busy": user + nice + system + irq + soft, "stolen": stolen}


class Others:
    def __init__(self):
        self.start = moment()

    def cores(self):
        return cores(self.start, moment(), os.sysconf("SC_CLK_TCK"))


def is_quiet(taken):
    """taken: what cores() answers."""
    return sum(taken) <= QUIET


def text(taken):
    return f"other processes took {taken[0]:.2f} cores, the hypervisor {taken[1]:.2f}"


def warning(taken):
    """Lines: steady work of others is in no spread, and takes more from the peer, whose threads spin."""
    if not is_quiet(taken):
        yield (f"- **the machine was not quiet**: {text(taken)}; these ratios are no result, above all "
               "with several threads")
