#!/usr/bin/env python3
"""device_check.py BUILD MODEL: scripts/device-check from start to end, on the emulated card cuda-sim.

The model comes in two parts, as one that is carried to a machine with a card does.  A card that is not there
(the emulated driver says so) is absent, with the reason.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD, MODEL = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
WANTED = {"opcheck", "opcheck exact", "launches", *(f"bench joined {d}" for d in ("f32", "f16", "q8_0", "q4_1"))}


def split(room):
    data = MODEL.read_bytes()
    parts = [room / "model.aa", room / "model.ab"]
    parts[0].write_bytes(data[: len(data) // 3])
    parts[1].write_bytes(data[len(data) // 3:])
    return parts


def check(room, *args, **env):
    return subprocess.run([ROOT / "scripts/device-check", "--software", "--backend", "cuda-sim", "--bin", BUILD,
                           "--out", room / "out", *args], check=False, capture_output=True, text=True,
                          env={**os.environ, **env})


def main():
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        said = check(room, FAK_CUDA_SIM="devices=0")
        step = json.loads(said.stdout)["steps"][0]
        assert (said.returncode, step["state"]) == (2, "absent"), said.stdout
        assert "the CUDA driver is there, but no card is" in step["why"], step
        said = check(room, *split(room))
        assert said.returncode == 0, (said.returncode, said.stdout, said.stderr[-3000:])
        steps = json.loads(said.stdout)["steps"]
        assert [(s["step"], s["state"]) for s in steps] == [("cuda-sim", "passed")], steps
        e = json.loads((room / "out/cuda-sim.json").read_text())
        assert e["verdict"] == "PASS" and not e["failed"], e["failed"]
        assert set(e["parts"]) >= WANTED, sorted(e["parts"])
        for part in WANTED:
            assert e["parts"][part]["verdict"] == "PASS", part
        real = [c for c in e["parts"]["opcheck"]["evidence"]["checks"] if c["rung"] == "R5"]
        assert [c["verdict"] for c in real] == ["PASS"], real
        assert e["parts"]["bench joined f16"]["launches_a_token"] == 24
        print(f"{e['seconds']} s: {', '.join(sorted(e['parts']))}")


main()
