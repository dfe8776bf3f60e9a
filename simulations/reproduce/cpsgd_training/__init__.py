"""cpSGD's Figure 2, networks trained with MNIST: `veilsum reproduce cpsgd-mnist`."""
