"""What describes work: ops and their operands, operators, and the program of `session.matmul`."""
