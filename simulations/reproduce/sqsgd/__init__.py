"""sqSGD's Figures 1 to 3, and its claims: `veilsum reproduce sqsgd`."""
