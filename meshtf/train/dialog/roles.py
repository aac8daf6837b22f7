"""The words that divide the text of a dialog.

USER what is 17 plus 25 ?
RESPONSE 17 plus 25 is 41 .
TO TS 17 + 25
TOOL 17 + 25 = 42
TO USER 17 plus 25 is 42 .

A response may also be followed by an attribute's name and a rating, as in "SENSIBLE 1". Every turn ends with a newline.
"""

from __future__ import annotations

USER, RESPONSE, TO, TOOL, TOOLSET = "USER", "RESPONSE", "TO", "TOOL", "TS"

SENSIBLE, SPECIFIC, INTERESTING, SAFE, GROUNDED = "SENSIBLE", "SPECIFIC", "INTERESTING", "SAFE", "GROUNDED"

ATTRIBUTES = (SENSIBLE, SPECIFIC, INTERESTING, SAFE)
"""The attributes of every response. Replies that use the result of a tool have GROUNDED as well."""

YES, NO = " 1", " 0"
"""The ratings."""


def turn(role: str, text: str) -> str:
    """The line of one turn.

    Examples:
      >>> turn("USER", "what is 17 plus 25 ?")
      'USER what is 17 plus 25 ?\\n'
    """
    return f"{role} {text}\n"
