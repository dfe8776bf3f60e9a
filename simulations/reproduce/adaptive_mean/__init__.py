"""Mean estimation with sketches that tune themselves: `veilsum reproduce adaptive-mean`."""
