"""Where a table comes from: versions, a digest of the code, the machine."""

from __future__ import annotations

import functools
import platform
import sys
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import unsoftmax

__all__ = ["code_digest", "provenance"]

_PACKAGES = ("numpy", "scipy", "torch", "dask", "distributed", "cvxpy")


@functools.cache
def code_digest() -> str:
    """A digest of every source file of this library, so that results of two codes are never mixed unseen.

    >>> len(code_digest())
    16
    """
    root = Path(unsoftmax.__file__).parent
    digest = blake2b(digest_size=8)
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def provenance() -> dict[str, Any]:
    """What another person needs to get the same figures.

    >>> provenance()["unsoftmax"] == unsoftmax.__version__
    True
    """
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "unsoftmax": unsoftmax.__version__,
        "code": code_digest(),
        "python": platform.python_version(),
        "packages": versions,
        "system": f"{platform.system()} {platform.machine()}",
        "byte_order": sys.byteorder,
    }
