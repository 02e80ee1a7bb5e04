"""Models with random weights in the shapes of known families: what a pass costs does not depend on what the weights say.

They are written as F16 by `write_shape.py`, in a venv with the `gguf` package, and quantised by llama.cpp's own tool, so
that each tensor gets the type that it has in real files. Kept in the peers folder for later runs.
"""

import subprocess
import sys

from build import HERE, folder, note

SHAPES = ("qwen2.5-0.5b", "llama-3.2-1b", "qwen3-0.6b")
TYPES = ("Q4_K_M", "Q8_0")
# The writer of GGUF files that the venv gets.
GGUF = "gguf==0.19.0"


def files(programs, shapes, types):
    """(name, path) of each model, made if it is not there yet."""
    models = folder() / "models"
    models.mkdir(parents=True, exist_ok=True)
    for shape in shapes:
        if shape not in SHAPES:
            sys.exit(f"no such shape: {shape}; there are {', '.join(SHAPES)}")
        paths = {kind: models / f"random-{shape}.{kind}.gguf" for kind in types}
        missing = {kind: path for kind, path in paths.items() if not path.exists()}
        if missing:
            full = models / f"random-{shape}.F16.gguf"
            note(f"writing {full.name}")
            subprocess.run([python(), HERE / "write_shape.py", shape, full], check=True)
            for kind, path in missing.items():
                note(f"quantising {path.name}")
                # Under another name until it is whole.
                part = path.with_suffix(".part")
                subprocess.run([programs / "llama-quantize", full, part, kind], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                part.rename(path)
            full.unlink()
        for kind, path in paths.items():
            yield f"{shape} {kind}", str(path)


def python():
    """A Python with the `gguf` package."""
    venv = folder() / "venv"
    program = venv / "bin" / "python"
    if not (venv / "ready").exists():
        note(f"making a venv with {GGUF}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GGUF], check=True)
        (venv / "ready").touch()
    return program
