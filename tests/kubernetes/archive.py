"""Makes an image's archive of a root file system's: archive.py ROOT.tar NAME:TAG ARCHIVE.tar COMMAND…"""

import hashlib
import io
import json
import sys
import tarfile


def main(root, name, archive, *command):
    """One layer, one configuration, and the list that ties them to the name."""
    with open(root, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    settings = {"Cmd": command, "Env": ["PATH=/usr/bin:/bin"]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": settings,
                         "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as out:
        out.add(root, "layer.tar")
        for member, content in (("config.json", config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    main(*sys.argv[1:])
