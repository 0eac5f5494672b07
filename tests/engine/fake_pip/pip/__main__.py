"""`pip download` as FAKE_PIP says: `whole`, `half` (then nothing more comes), `fail`, `full` or `other`."""

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

mode, wheel = os.environ["FAKE_PIP"], Path(os.environ["FAKE_PIP_WHEEL"])
with Path(os.environ["FAKE_PIP_LOG"]).open("a", encoding="utf-8") as log:
    print(os.getpid(), *sys.argv, file=log)
assert sys.argv[1] == "download"
assert "--no-deps" in sys.argv
dest = Path(next(word for word in sys.argv if word.startswith("--dest=")).removeprefix("--dest="))
dest.mkdir(parents=True, exist_ok=True)
arriving = Path(tempfile.mkdtemp(prefix="pip-unpack-")) / wheel.name
data = wheel.read_bytes()
match mode:
    case "whole":
        arriving.write_bytes(data)
        shutil.copy(arriving, dest / wheel.name)
    case "half":
        arriving.write_bytes(data[: len(data) // 2])
        threading.Event().wait()
    case "fail":
        sys.stderr.write("WARNING: Retrying\n")
        sys.stderr.write("ERROR: No matching distribution found for tiny==1\n")
        sys.exit(1)
    case "full":
        sys.stdout.write("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n")
        sys.exit(1)
    case "other":
        (dest / wheel.name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    case "short":
        (dest / wheel.name).write_bytes(data[:-1])
    case "sdist":
        (dest / "tiny-1.tar.gz").write_bytes(data)
