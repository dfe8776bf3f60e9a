"""A site's own process for Flower: whatever the researcher's code does, one private vector leaves.

In Flower a SuperNode runs the code that comes with a run, privacy code included. Here the SuperNode
runs nothing (`--isolation process`). The site's process takes its tasks and answers every message
of the protocol itself, with the site's own code, keys, policy and history. Only training is left to
the app, in a process of its own (`inside`), which is given the model and gives back the bytes of
arrays. Whatever goes wrong there becomes an update of zeros, noised like any other and sent at the
same moment, so that neither words nor metrics nor failures of training reach the server.

What the training's process can reach on this machine is for the operator's sandbox to say; see
docs/integrations/flower-site.md.
"""
