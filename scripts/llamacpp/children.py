"""Child processes that never outlive the script, and what stops it."""
import os
import signal
import subprocess

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(Exception):
    """One sentence, and the exit code: 1 the work failed, 2 refused before work."""

    def __init__(self, sentence, code=1):
        super().__init__(sentence)
        self.code = code


running = []


def end(child):
    """Ends a child that still runs, and all that it has started."""
    for sig, patience in ((signal.SIGTERM, 3), (signal.SIGKILL, None)):
        if child.poll() is not None:
            break
        try:
            os.killpg(child.pid, sig)
            child.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    if child in running:
        running.remove(child)


def end_all():
    for child in list(running):
        end(child)


def start(command, **more):
    """In a group of its own, so that all of it can be ended.  Signals wait until it is known."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        child = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, held), **more)
        running.append(child)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return child


def run(command, seconds=None, **more):
    """(exit code, standard output, standard error)"""
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more}
    try:
        child = start(command, **more)
    except OSError as error:
        raise Stop(f"cannot run {command[0]}: {error.strerror}") from error
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise Stop(f"{os.path.basename(str(command[0]))} has not ended after {seconds} s: "
                   f"{' '.join(map(str, command))}") from error
    finally:
        end(child)
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
    return child.returncode, out or "", err or ""


def interrupt(signum, _):
    raise KeyboardInterrupt(signum)


def heed_signals():
    for sig in ENDING:
        signal.signal(sig, interrupt)
