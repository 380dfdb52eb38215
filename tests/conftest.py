"""What holds for all tests."""

pytest_plugins = ("faults.table",)
