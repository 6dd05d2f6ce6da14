"""Ratios, the table and the plot of what was measured."""
import statistics
from xml.sax.saxutils import escape

LESS_IS_BETTER = {"load", "ttft", "rss"}
NOISY = 1.5  # highest ratio / lowest: what has more says little
NAMES = {"load": "load", "ttft": "load and first token", "rss": "peak memory"}


def median(values):
    return statistics.median(values)


def better_setting(found):
    """The setting with the best median, of {setting: [value of each round]}; more is better."""
    return max(found, key=lambda setting: median(found[setting]))


def item(file, threads, phase, ours, peer, **more):
    """ours, peer: the values of the rounds, in order; ratio: the median of the rounds' ratios;
    best: our best round / the peer's best, which a machine that is busy at times troubles less."""
    if len(ours) != len(peer) or not ours:
        raise ValueError(f"{len(ours)} rounds of ours, {len(peer)} of the peer")
    ratios = [a / b for a, b in zip(ours, peer)]
    pick = min if phase in LESS_IS_BETTER else max
    return {"file": file, "threads": threads, "phase": phase, "ours": median(ours),
            "peer": median(peer), "ratio": median(ratios), "low": min(ratios), "high": max(ratios),
            "best": pick(ours) / pick(peer), "noisy": max(ratios) > NOISY * min(ratios),
            "rounds": len(ratios), **more}


def name_of(i):
    """"prefill 512", "decode 128 after 1024", "batch 8 x 32"."""
    if i["phase"] == "prefill":
        return f"prefill {i['tokens']}"
    if i["phase"] in ("decode", "deep"):
        return f"decode {i['tokens']} after {i['depth']}"
    if i["phase"] == "batch8":
        return f"batch {i['batch']} x {i['tokens']}"
    return NAMES.get(i["phase"], i["phase"])


def short(i):
    return i["file"].removesuffix(".gguf")


def value(x, unit):
    if unit == "bytes":
        return f"{x / 1e6:.0f} MB"
    return f"{x:.4f} s" if unit == "s" else f"{x:.1f} {unit}"


def cell(i):
    """"342 / 136 = **2.51**", in tokens a second, seconds or MB."""
    scale, digits = {"bytes": (1e6, 0), "s": (1, 2)}.get(i["unit"], (1, 0))
    ours, peer = (f"{x / scale:.{digits}f}" for x in (i["ours"], i["peer"]))
    return f"{ours} / {peer} = **{i['ratio']:.2f}**" + remark(i)


def grid(items):
    """Markdown: a row for a file and a number of threads, a column for a phase; ours / peer."""
    phases = list(dict.fromkeys(name_of(i) for i in items))
    units = {name_of(i): {"bytes": "MB"}.get(i["unit"], i["unit"]) for i in items}
    yield "| file | threads | " + " | ".join(f"{p}, {units[p]}" for p in phases) + " |"
    yield "|---|--:|" + "---|" * len(phases)
    rows = {}
    for i in items:
        rows.setdefault((short(i), str(i["threads"])), {})[name_of(i)] = cell(i)
    for (file, threads), found in rows.items():
        cells = [file.replace("|", "\\|"), threads, *(found.get(p, "-") for p in phases)]
        yield "| " + " | ".join(cells) + " |"


def table(items):
    """Markdown."""
    head = ["file", "threads", "phase", "ours", "peer", "ours / peer", "lowest", "highest",
            "best / best", "ours, kv f32", "peer's flash attention"]
    yield "| " + " | ".join(head) + " |"
    yield "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|---|"
    for i in items:
        other = i.get("ours_kv_f32")
        cells = [short(i), str(i["threads"]), name_of(i), value(i["ours"], i["unit"]),
                 value(i["peer"], i["unit"]), f"**{i['ratio']:.2f}**" + remark(i),
                 f"{i['low']:.2f}", f"{i['high']:.2f}", f"{i['best']:.2f}",
                 value(other, i["unit"]) if other else "-", i.get("flash_attn", "-")]
        yield "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def share_lines(shares):
    """What part of a plain read loop's speed the decoding reads weights with."""
    for i in shares:
        yield (f"- {short(i)}, 1 thread: a plain read loop reads {i['loop'] / 1e9:.1f} GB/s; "
               f"decoding, which reads {i['weights'] / 1e6:.0f} MB a token, gets "
               f"{i['ours']:.1%} of it ({i['ours_low']:.1%} to {i['ours_high']:.1%}), the "
               f"peer {i['peer']:.1%}")


def remark(i):
    return " (1 round)" if i["rounds"] == 1 else " (noisy)" * i["noisy"]


def noise_lines(items):
    once, noisy = sum(i["rounds"] == 1 for i in items), sum(i["noisy"] for i in items)
    if once:
        yield f"- {once} of {len(items)} rows are of 1 round: nobody knows how they spread"
    if noisy:
        yield (f"- {noisy} of {len(items)} rows are noisy: their rounds' ratios differ by a factor "
               f"of over {NOISY}, so something else ran; look at best / best, and measure again")


def busy_lines(items):
    for i in items:
        yield (f"- {short(i)}, beside one busy process: decode with 2 threads is {i['ours']:.2f} "
               f"of decode with 1 ({i['ours_tok_s'][1]:.1f} and {i['ours_tok_s'][0]:.1f} tok/s), "
               f"the peer's {i['peer']:.2f} ({i['peer_tok_s'][1]:.1f} and "
               f"{i['peer_tok_s'][0]:.1f})")


# ---- the plot ----------------------------------------------------------------------------------

LEFT, WIDE, ROW, TOP = 210, 420, 18, 58
COLOURS = ["#3b6fb6", "#d9822b", "#5a9e57", "#9c5fa8"]


def times_better(i):
    """(ratio, low, high) such that more is better, of time and memory too."""
    if i["phase"] in LESS_IS_BETTER:
        return 1 / i["ratio"], 1 / i["high"], 1 / i["low"]
    return i["ratio"], i["low"], i["high"]


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def bar(i, y, colour, scale):
    """A bar to the ratio, a line from the lowest to the highest, the number."""
    ratio, low, high = times_better(i)
    yield text(LEFT - 8, y + 12, f"{name_of(i)}, {i['threads']} thr.", 'text-anchor="end"')
    yield (f'<rect x="{LEFT}" y="{y + 2}" width="{ratio * scale:.1f}" height="{ROW - 5}" '
           f'fill="{colour}"/>')
    yield (f'<line x1="{LEFT + low * scale:.1f}" x2="{LEFT + high * scale:.1f}" y1="{y + 8.5}" '
           f'y2="{y + 8.5}" stroke="black"/>')
    yield text(LEFT + max(ratio, high) * scale + 6, y + 12, f"{ratio:.2f}")


def plot(items, notes=()):
    """An SVG: bars of how many times better than the peer, per file and phase; notes below."""
    most = max([times_better(i)[2] for i in items] + [1])
    scale, y, body = WIDE / most, TOP, []
    threads = sorted({i["threads"] for i in items})
    for file in dict.fromkeys(i["file"] for i in items):
        body.append(text(8, y + 14, file.removesuffix(".gguf"), 'font-weight="bold"'))
        y += ROW + 2
        for i in (i for i in items if i["file"] == file):
            colour = COLOURS[threads.index(i["threads"]) % len(COLOURS)]
            body += bar(i, y, colour, scale)
            y += ROW
        y += 8
    one = LEFT + scale
    width, height = LEFT + WIDE + 60, y + 10 + 14 * len(notes)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(8, 20, "fak beside llama.cpp: how many times as good", 'font-size="15"'),
        text(8, 40, "speed ours / peer; time and memory peer / ours; the line: lowest to highest "
             "round"),
        *body,
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{TOP - 8}" y2="{y}" stroke="black" '
        'stroke-dasharray="4 3"/>',
        text(one, TOP - 9, "1", 'text-anchor="middle"'),
        *[text(8, y + 16 + 14 * n, note, 'font-size="10" fill="#555555"')
          for n, note in enumerate(notes)],
        "</svg>", ""])
