"""A private mean of vectors in one call; the same lines as in the README.

Needs: veilsum
"""

import numpy as np

import veilsum

vectors = np.random.default_rng(0).normal(0.5, 0.1, size=(40, 100))
result = veilsum.private_mean(vectors, epsilon=8.0, delta=1e-6, clip_l2=6.0)
print(result)
print("mean of all numbers:", result.mean.mean())
