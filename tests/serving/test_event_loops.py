"""The client of an event loop, where a script runs one loop after another."""

import asyncio
import gc

import numpy as np
import pytest
from stand_ins import LIMIT_S, expected, observation, serving

from morph_vla.serving.client import AsyncWebsocketClientPolicy, ServerError


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # whose loop has ended: only it could close
def test_each_event_loop_has_a_connection_of_its_own():
    asked = observation(3, episode=3, step=0)
    with serving() as server:
        asker = AsyncWebsocketClientPolicy("127.0.0.1", server.port, timeout_s=LIMIT_S)
        for _ in range(3):
            np.testing.assert_array_equal(asyncio.run(asker.infer(asked))["actions"], expected(asked))
        asyncio.run(asker.close())

        async def meanwhile():
            await asker.connect()
            with pytest.raises(ServerError, match=r"^another event loop uses this client; make one for each"):
                await asyncio.to_thread(asyncio.run, asker.infer(asked))
            await asker.close()

        asyncio.run(meanwhile())
    gc.collect()  # here, and not in another test
