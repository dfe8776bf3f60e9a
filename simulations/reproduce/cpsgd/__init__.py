"""cpSGD's theorems and Figure 1, and its mean on k levels: `veilsum reproduce cpsgd`."""
