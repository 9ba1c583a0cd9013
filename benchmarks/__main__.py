"""All benchmarks in turn, or those named: python -m benchmarks [NAME ...]"""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import benchmarks


def main() -> None:
    known = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_"))
    for name in sys.argv[1:] or known:
        print(f"\n## {name}\n", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)


if __name__ == "__main__":
    main()
