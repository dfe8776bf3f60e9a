"""`python -m simulations` is the command `veilsum`."""

from veilsum.__main__ import main

if __name__ == "__main__":
    main()
