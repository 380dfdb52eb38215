"""`python -m serve_apps.cli` is `schedulemesh`."""

from serve_apps.cli.app import main

if __name__ == "__main__":
    main()
