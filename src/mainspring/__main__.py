"""`python -m mainspring`."""

from mainspring.edges.cli.main import main

if __name__ == "__main__":
    main()
