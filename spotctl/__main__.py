"""`python -m spotctl`: the command line where its script is not on the PATH, as for a timer."""

from spotctl.cli.app import main

if __name__ == "__main__":
    main()
