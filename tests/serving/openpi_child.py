"""openpi's own client, in an environment of its own: asks a server what comes on stdin, answers on stdout.

It imports nothing of morph_vla. A message is its length in four bytes, and openpi-client's msgpack.
"""

import sys
from typing import Any

from openpi_client import action_chunk_broker, msgpack_numpy, websocket_client_policy


def main() -> None:
    policy: Any = None
    chunks: Any = None
    while head := sys.stdin.buffer.read(4):
        frame = sys.stdin.buffer.read(int.from_bytes(head, "big"))
        message = msgpack_numpy.unpackb(frame)
        if "port" in message:
            client = websocket_client_policy.WebsocketClientPolicy
            policy = client("127.0.0.1", message["port"], message.get("key"))
            chunks = action_chunk_broker.ActionChunkBroker(policy, message.get("horizon", 1))
            answer = policy.get_server_metadata()
        elif "pack" in message:
            answer = msgpack_numpy.packb(message["pack"])
        elif "step" in message:
            answer = chunks.infer(message["step"])
        else:
            try:
                answer = policy.infer(message["infer"])
            except RuntimeError as error:
                answer = str(error)
        reply = msgpack_numpy.packb(answer)
        sys.stdout.buffer.write(len(reply).to_bytes(4, "big") + reply)
        sys.stdout.buffer.flush()


main()
