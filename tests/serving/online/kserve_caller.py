"""KServe's own client, in an environment of its own: asks an endpoint, and prints what it got as JSON."""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig


async def called(url: str, model: str, ids: list[str], *, binary: bool, headers: dict[str, str]) -> dict[str, object]:
    """Health, and an answer."""
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    asked = InferInput("user", [len(ids)], "BYTES")
    asked.set_data_from_numpy(np.array(ids, object), binary_data=binary)
    health = [await client.is_server_live(url), await client.is_server_ready(url)]
    health.append(await client.is_model_ready(url, model, headers=headers))
    try:
        answer = await client.infer(url, InferRequest(model, [asked]), model_name=model, headers=dict(headers))
    except Exception as error:  # noqa: BLE001 - whatever the client raises is for the test to look at
        return {"health": health, "error": str(error)}
    outputs = {each.name: each.as_numpy().tolist() for each in answer.outputs}
    return {"health": health, "outputs": outputs, "parameters": answer.parameters}


if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    sys.stdout.write(json.dumps(asyncio.run(called(**given))))
