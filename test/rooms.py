#!/usr/bin/env python3
"""rooms.py [ROOT]: holds core/ to its order of rooms, and plugins/ and abi/ to their walls.

The order is that of core_files, then fakrun_files, in core/meson.build: a file of core/ includes
only headers that stand above it there, or the ABI.  A plugin includes its own files and
fak_backend.h; cpu-ref alone also ref.h of the core.  The ABI header includes <stdint.h> and
<stddef.h>.
"""
import pathlib
import re
import sys

SOURCES = {".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".cu", ".cuh", ".inc", ".m", ".mm"}
ABI = "abi/fak_backend.h"


def read_order(root):
    """The rooms of core/ in order: the names without suffix in the lists of core/meson.build."""
    listing = root / "core/meson.build"
    text = re.sub(r"#.*", "", listing.read_text()) if listing.exists() else ""
    order = []
    for name in ("core_files", "fakrun_files"):
        for files in re.findall(name + r"\s*\+?=\s*files\((.*?)\)", text, re.S):
            order += [pathlib.Path(n).stem for n in re.findall(r"'([^']+)'", files)]
    return order


def read_includes(path):
    """(delimiter, name) of each #include outside comments; delimiter '' where it is computed."""
    text = re.sub(r"\\\n", " ", path.read_text(errors="replace"))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    for rest in re.findall(r"^\s*#\s*(?:include|include_next|import)\b\s*(.*)", text, re.M):
        found = re.match(r'(["<])([^">]+)[">]', rest)
        yield (found[1], found[2]) if found else ("", rest.strip())


def resolve(root, path, name, folders=()):
    """The file that a quoted include means, relative to root; None where there is none."""
    for folder in (path.parent, *folders):
        target = (folder / name).resolve()
        if target.is_file() and target.is_relative_to(root):
            return target.relative_to(root).as_posix()
    return None


def check_core(root, order, faults, edges):
    for path in sorted((root / "core").glob("**/*")):
        here = path.relative_to(root).as_posix()
        if path.suffix not in SOURCES:
            continue
        if path.stem not in order:
            faults.append(f"{here}: not listed in core/meson.build")
            continue
        for kind, name in read_includes(path):
            if kind == "<" and ".." not in name:
                continue
            target = resolve(root, path, name)
            if target is None:
                faults.append(f"{here}: includes {name}, which is nowhere")
            elif target == ABI:
                pass
            elif pathlib.PurePath(target).parent != pathlib.PurePath("core"):
                faults.append(f"{here}: includes {name}, which is outside core/")
            else:
                edges.setdefault(here, []).append(target)
                stem = pathlib.PurePath(target).stem
                if stem in order and order.index(stem) > order.index(path.stem):
                    faults.append(f"{here}: includes {name}, a lower room")


def check_plugins(root, faults, edges):
    for plugin in sorted(p for p in (root / "plugins").glob("*") if p.is_dir()):
        for path in sorted(p for p in plugin.glob("**/*") if p.suffix in SOURCES):
            here = path.relative_to(root).as_posix()
            for kind, name in read_includes(path):
                if kind == "<" and ".." not in name or name == "fak_backend.h":
                    continue
                target = resolve(root, path, name, (plugin, root / "core"))
                if target is None:
                    faults.append(f"{here}: includes {name}, which is nowhere")
                elif (root / target).is_relative_to(plugin):
                    edges.setdefault(here, []).append(target)
                elif plugin.name != "cpu-ref" or target != "core/ref.h":
                    faults.append(f"{here}: includes {name}, which is outside the plugin")


def check_abi(root, faults):
    for path in sorted((root / "abi").glob("**/*.h")):
        for kind, name in read_includes(path):
            if kind != "<" or name not in ("stdint.h", "stddef.h"):
                faults.append(f"{path.relative_to(root).as_posix()}: includes {name}, "
                              "not <stdint.h> or <stddef.h>")


def check_cycles(edges, faults):
    done, trail = set(), []

    def visit(here):
        if here in trail:
            faults.append("cycle: " + " > ".join(trail[trail.index(here):] + [here]))
        elif here not in done:
            trail.append(here)
            for target in edges.get(here, []):
                visit(target)
            trail.pop()
            done.add(here)

    for here in sorted(edges):
        visit(here)


def check(root):
    """(rooms in order, faults)."""
    root = pathlib.Path(root).resolve()
    order, faults, edges = read_order(root), [], {}
    if not order:
        faults.append("core/meson.build: no core_files = files(...)")
    for name in sorted({n for n in order if order.count(n) > 1}):
        faults.append(f"core/meson.build: lists {name} twice")
    check_core(root, order, faults, edges)
    check_plugins(root, faults, edges)
    check_abi(root, faults)
    check_cycles(edges, faults)
    return order, faults


def main():
    default = pathlib.Path(__file__).resolve().parent.parent
    order, faults = check(sys.argv[1] if len(sys.argv) > 1 else default)
    print("\n".join(faults) or f"{len(order)} rooms in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
