"""What the suite starts as its client: hands the order to who listens on a port, and is there as long as that works.

It imports next to nothing: the suite starts it for each scenario.
"""

import os
import socket
import sys


def main(port: str, url: str) -> None:
    """Tell where the server is and what the suite has put into the environment, and then what comes back."""
    told = {"url": url, **{name: value for name, value in os.environ.items() if name.startswith("MCP_CONFORMANCE_")}}
    lines = "".join(f"{name}={value.encode().hex()}\n" for name, value in told.items())
    with socket.create_connection(("127.0.0.1", int(port))) as stream:
        stream.sendall(f"{lines}\n".encode())
        while said := stream.recv(1 << 16):
            sys.stderr.buffer.write(said)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[-1])
