"""Gets llama.cpp's source and builds it, in a folder outside the checkout that later runs find again.

The source is the one that the PyPI package `llama-cpp-python` vendors, fetched with the user's own pip.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

VERSION = "0.3.36"
HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("passes", "llama-server", "llama-quantize")


def folder():
    """Where everything that is fetched or built is kept: FORETOKEN_PEERS, else the user's cache."""
    given = os.environ.get("FORETOKEN_PEERS")
    if given:
        return pathlib.Path(given).resolve()
    caches = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(caches) / "foretoken" / "peers"


def note(text):
    print(text, file=sys.stderr, flush=True)


def source(version):
    """The folder of llama.cpp's source."""
    place = folder() / f"llama-cpp-python-{version}"
    found = place / "vendor" / "llama.cpp"
    if found.is_dir():
        return found
    note(f"fetching llama-cpp-python {version}")
    fetched = folder() / "sdist"
    fetched.mkdir(parents=True, exist_ok=True)
    # Only this package from source: its build requirements, which pip looks at, may come as wheels.
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--no-binary", "llama-cpp-python", "--dest", fetched, f"llama-cpp-python=={version}"], check=True)
    archive = next(fetched.glob(f"llama_cpp_python-{version}.tar.gz"))
    unpacked = folder() / f"unpacking-{os.getpid()}"
    with tarfile.open(archive) as files:
        # The filter refuses paths outside the folder; Pythons without it are older than the advice to use it.
        files.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    # Renamed once it is whole, so that an interrupted run leaves nothing that looks finished.
    (unpacked / f"llama_cpp_python-{version}").rename(place)
    shutil.rmtree(unpacked)
    archive.unlink()
    return found


def build(version):
    """Builds what is not built yet; the folder of the programs."""
    from_source = source(version)
    out = folder() / f"build-{version}"
    log = folder() / f"build-{version}.log"
    note(f"building llama.cpp in {out} (log: {log.name} beside it; minutes the first time)")
    with open(log, "w") as said:
        for command in (
            ["cmake", "-G", "Ninja", "-S", HERE, "-B", out, f"-DLLAMA_SOURCE={from_source}",
             "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_RUNTIME_OUTPUT_DIRECTORY={out / 'bin'}"],
            ["ninja", "-C", out, *PROGRAMS],
        ):
            if subprocess.run(command, stdout=said, stderr=subprocess.STDOUT).returncode != 0:
                said.flush()
                sys.exit(f"`{command[0]}` failed; the end of {log}:\n" + log.read_text()[-3000:])
    return out / "bin"
