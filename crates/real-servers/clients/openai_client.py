"""Asks an OpenAI-compatible server once whole and once streamed, with the openai client.

What it does not know: what is right. It prints what it got as JSON, and the test judges.
Contract: `openai_client.py BASE_URL`; errors of the client end it with a traceback.
"""

import json
import sys

from openai import OpenAI


def main():
    client = OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=60)
    question = [{"role": "user", "content": "river maple amber"}]
    asked = {"model": "default_model", "messages": question, "max_tokens": 24, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    pieces = []
    for event in client.chat.completions.create(stream=True, **asked):
        if event.choices and event.choices[0].delta.content:
            pieces.append(event.choices[0].delta.content)
    models = [model.id for model in client.models.list()]
    print(json.dumps({"whole": whole.choices[0].message.content, "pieces": pieces, "models": models}))


if __name__ == "__main__":
    main()
