"""FedSel's Table 3 and Figure 2 (f) to (i): `veilsum reproduce fedsel`."""
