"""How a round's messages travel: the stages, and the aggregators that drive them."""
