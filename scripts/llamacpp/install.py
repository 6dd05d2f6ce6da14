"""The peer in a virtual environment of its own, built for this machine, and files of its making."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from . import children
from .children import Stop

PACKAGE = "llama-cpp-python==0.3.36"
CMAKE_ARGS = "-DGGML_NATIVE=ON"
MADE_BY = {"package": PACKAGE, "cmake_args": CMAKE_ARGS}
ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV, LOG = ROOT / "build/peer-venv", ROOT / "build/peer-venv.log"
MARK = VENV / "made-by.json"  # written last: what has none is not whole
PEER = [VENV / "bin/python", pathlib.Path(__file__).with_name("peer.py")]
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TYPES = ["Q8_0", "Q4_0", "F16", "F32"]
FEATURES = {"avx2": "AVX2", "avx512f": "AVX512"}  # /proc/cpuinfo's word, llama.cpp's


def say(text):
    print(f"bench-llamacpp: {text}", file=sys.stderr, flush=True)


def packages():
    """scripts/setup may ask for a password, so it keeps the terminal."""
    if subprocess.run([ROOT / "scripts/setup", "peer"], stdout=sys.stderr, check=False).returncode:
        raise Stop("scripts/setup peer could not install what the peer's build needs (see above)")


def reason(log):
    """The line of pip's or llama.cpp's that says what went wrong."""
    lines = [x.strip() for x in log.splitlines() if x.strip()]
    told = [x for x in lines if re.search(r"error|fatal|cannot|failed|assert", x, re.I)]
    errors = [x for x in told if x.startswith("ERROR:")] or told or lines or ["it said nothing"]
    return errors[0][:200]


def step(what, command, env=None):
    """Its output goes to LOG."""
    with open(LOG, "a+", encoding="utf-8", errors="replace") as log:
        log.write(f"$ {' '.join(map(str, command))}\n")
        log.flush()
        at = log.tell()
        code, _, _ = children.run(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        log.seek(at)
        said = log.read()
    if code:
        raise Stop(f"{what} failed with exit code {code}: {reason(said)} (all of it: "
                   f"{LOG.relative_to(ROOT)})")


def is_whole():
    try:
        return json.loads(MARK.read_text()) == MADE_BY
    except (OSError, ValueError):
        return False


def venv():
    if is_whole():
        return
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    shutil.rmtree(VENV, ignore_errors=True)
    step("python3 -m venv", ["python3", "-m", "venv", VENV])
    say(f"building {PACKAGE} with {CMAKE_ARGS}, about 5 minutes (what it says: "
        f"{LOG.relative_to(ROOT)})")
    env = {**os.environ, "CMAKE_ARGS": CMAKE_ARGS,
           "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()), "TMPDIR": str(VENV / "tmp")}
    (VENV / "tmp").mkdir(exist_ok=True)  # what an interrupted build leaves goes with the venv
    # no cache: a wheel kept from another build may be for another machine
    step(f"pip install {PACKAGE}", [VENV / "bin/python", "-m", "pip", "install", "--no-cache-dir",
                                    "--disable-pip-version-check", "--no-binary",
                                    "llama-cpp-python", PACKAGE], env)
    MARK.write_text(json.dumps(MADE_BY) + "\n")


def ask(*arguments, seconds=1800):
    """What peer.py answers."""
    code, out, err = children.run([*PEER, *arguments], seconds)
    if code:
        how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise Stop(f"llama.cpp {how} in {' '.join(map(str, arguments))}: {reason(err)}")
    return json.loads(out.strip().splitlines()[-1])


def about():
    """Versions; a build that leaves vector instructions of this machine unused is no fair match."""
    found = ask("about")
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
        cpu = set(text.split())
    except OSError:
        cpu = set()
    for word, name in FEATURES.items():
        if word in cpu and f"{name} = 1" not in found["system"]:
            raise Stop(f"the peer was built without {name}, which this machine has: remove "
                       f"{VENV.relative_to(ROOT)} to have it built again")
    return found


def model():
    if not MODEL.exists():
        rc, _, err = children.run([ROOT / "scripts/fetch-model"])
        if rc:
            raise Stop("scripts/fetch-model failed: " + (err.strip().splitlines() or ["?"])[-1])
    return MODEL


def files():
    """The shipped model, and what the peer's quantiser makes of it."""
    source = model()
    found = [source]
    for kind in TYPES:
        path = source.with_name(source.name.replace("Q4_1", kind))
        if not path.exists():
            say(f"making {path.relative_to(ROOT)}")
            ask("quantize", source, path, kind.lower(), os.cpu_count())
        found.append(path)
    return found
