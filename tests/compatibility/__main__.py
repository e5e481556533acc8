"""`python -m tests.compatibility` writes docs/reference/compatibility.md."""

from tests.compatibility.page import PAGE, page

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
