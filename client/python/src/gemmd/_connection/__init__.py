"""How a client reaches a server: where it is, who calls, and one unary call."""
