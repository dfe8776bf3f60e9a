"""Your own attack: override what clients are told, and play.

Needs: veilsum
Run with: python examples/own_attack.py
"""

from secagg import Mode
from simulations.threats import Adversary, Setting, exact
from simulations.threats.game.weak_clients import NoSelfMask


class LateUpload(Adversary):
    """Says that the target never answered, gets its masking key, then reads its upload."""

    def survivors_for(self, u):
        return tuple(v for v in super().survivors_for(u) if v != self.target)

    def claims(self):
        left = self.knowledge.peeled(self.target)
        return {} if left is None else {self.target: left}


setting = Setting(size=6, lost=2, colluders=1, mode=Mode.ACTIVE)
product = exact(LateUpload, setting, trials=20, seed=1)
without_self_mask = exact(LateUpload, setting, trials=20, seed=1, session=NoSelfMask)
print(f"our clients: read {product.wins} of {product.trials} inputs")
print(f"clients without a self mask: {without_self_mask.wins} of {without_self_mask.trials}")
