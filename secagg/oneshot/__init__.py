"""One-shot sums: every client speaks once, and a committee opens the sum of the lattice keys."""
