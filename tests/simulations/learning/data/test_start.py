"""What the data sets need is imported when it is used: scikit-learn takes half a second."""

from __future__ import annotations

import subprocess
import sys


def test_scikit_learn_waits_until_it_is_needed() -> None:
    program = (
        "import sys\n"
        "from simulations.learning.data import load_dataset\n"
        "before = 'sklearn' in sys.modules\n"
        "load_dataset('digits')\n"
        "print(before, 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)  # noqa: S603
    assert done.stdout.split() == ["False", "True"], done.stderr
