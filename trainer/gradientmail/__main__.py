"""`python -m gradientmail`: the command line; nodes of `gradientmail local` hold their leash first."""

from gradientmail.leash import hold_leash

if __name__ == "__main__":
    hold_leash()
    from gradientmail.cli import main

    main()
