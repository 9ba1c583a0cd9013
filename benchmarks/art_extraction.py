"""The network part against the extraction attack of ART (Adversarial Robustness Toolbox 1.20.1), on the same networks.

    python -m venv art && art/bin/pip install adversarial-robustness-toolbox==1.20.1 packaging
    python -m benchmarks.art_extraction --art art/bin/python [--seeds 6]

ART has an environment of its own, since its pins conflict. It must be told the number of neurons, and is
shown a second output of the same neurons, which it needs; ours has neither. Success: the extracted function
deviates by at most 1e-4 relative on 1,000 fresh rows. For ART only the queries of its attack are counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import unsoftmax

SHAPES = ((16, 4), (16, 8))
_SECONDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--art", type=Path, help="the Python of an environment that has ART")
    parser.add_argument("--seeds", type=int, default=6)
    options = parser.parse_args()
    if options.art is None:
        parser.error("ART runs in its own environment; make one as the text above says, and pass --art PYTHON")
    child = Path(__file__).parent / "peers" / "art_child.py"
    print("| d | neurons | ours: right | ours: most queries | ours: worst deviation | ART: right | ART: median queries | ART / ours |")
    print("|---|---|---|---|---|---|---|---|")
    for d, m in SHAPES:
        ours, theirs, right, art_right, worst = [], [], 0, 0, 0.0
        for seed in range(options.seeds):
            network = unsoftmax.random_relu_network(d, m, seed=seed, biases=True)
            result = unsoftmax.recover_network(network, seed=seed)
            x = np.random.default_rng(seed).standard_normal((1000, d))
            if result.model is not None:
                gap = float(np.abs(result.model(x[:, None]) - network(x)).max() / np.abs(network(x)).max())
                right, worst = right + (gap <= 1e-4), max(worst, gap)
            ours.append(result.queries.learning)
            with tempfile.TemporaryDirectory() as folder:
                saved = Path(folder, "network.npz")
                b = getattr(network, "b", None)
                np.savez(saved, A=network.A, b=np.zeros(m) if b is None else b, u=network.u, c=float(network.c))
                try:
                    done = subprocess.run([options.art, child, saved, str(seed)], capture_output=True, text=True, check=True, timeout=_SECONDS)
                    found = json.loads(done.stdout.splitlines()[-1])
                except subprocess.TimeoutExpired:
                    continue
            theirs.append(found["queries"])
            art_right += found["error"] is not None and found["error"] <= 1e-4
        middle = float(np.median(theirs)) if theirs else float("nan")
        print(
            f"| {d} | {m} | {right} of {options.seeds} | {max(ours):,} | {worst:.0e} | {art_right} of {options.seeds} | {middle:,.0f} "
            f"| {middle / float(np.median(ours)):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
