"""Do PowerSGD, clips that follow and Denoise help? `veilsum reproduce secure-compression`."""
