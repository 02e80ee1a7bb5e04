"""A generic client: no generated code, only what reflection tells.

usage: reflect.py ORCHESTRATOR VERIFIER DRAFT_WORKER   (each host:port)

TLS_CA names the CA of servers that speak TLS; TLS_CERT and TLS_KEY what they are shown; API_KEY is for the orchestrator.
"""

import os
import sys
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

FNV_OFFSET, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def text_hash(tokens):
    value = FNV_OFFSET
    for token in tokens:
        for byte in token.to_bytes(4, "little"):
            value = (value ^ byte) * FNV_PRIME % 2**64
    return value


def channel(address):
    """Plaintext, or with certificates and a key as the environment says."""
    if "TLS_CA" not in os.environ:
        return grpc.insecure_channel(address)
    root, certificate, key = (contents(os.environ.get(name)) for name in ("TLS_CA", "TLS_CERT", "TLS_KEY"))
    credentials = grpc.ssl_channel_credentials(root, key, certificate)
    if "API_KEY" in os.environ:
        # Sent as `authorization: Bearer KEY`, over TLS alone.
        bearer = grpc.access_token_call_credentials(os.environ["API_KEY"])
        credentials = grpc.composite_channel_credentials(credentials, bearer)
    return grpc.secure_channel(address, credentials)


def contents(path):
    if not path:
        return None
    with open(path, "rb") as file:
        return file.read()


class Service:
    """One server as reflection shows it."""

    def __init__(self, address, name):
        self.channel = channel(address)
        database = ProtoReflectionDescriptorDatabase(self.channel)
        self.names = list(database.get_services())
        assert name in self.names, f"{name} is not among {self.names}"
        assert "grpc.health.v1.Health" in self.names, self.names
        self.pool = descriptor_pool.DescriptorPool(database)
        self.service = self.pool.FindServiceByName(name)
        self.called = 0
        health = self.pool.FindServiceByName("grpc.health.v1.Health")
        deadline = time.monotonic() + 30
        while self.invoke(health.methods_by_name["Check"], {"service": name}).status != 1:
            assert time.monotonic() < deadline, f"{name} is not SERVING"
            time.sleep(0.05)

    def message(self, descriptor, fields):
        return message_factory.GetMessageClass(descriptor)(**fields)

    def invoke(self, method, request):
        """Calls any kind of method; `request` is a dict, or a list of dicts for a request stream."""
        path = f"/{method.containing_service.full_name}/{method.name}"
        reply_class = message_factory.GetMessageClass(method.output_type)
        kind = ("stream" if method.client_streaming else "unary") + "_" + ("stream" if method.server_streaming else "unary")
        call = getattr(self.channel, kind)(
            path, request_serializer=lambda m: m.SerializeToString(), response_deserializer=reply_class.FromString
        )
        if method.client_streaming:
            return call((self.message(method.input_type, fields) for fields in request), timeout=60)
        return call(self.message(method.input_type, request), timeout=60)

    def call(self, name, request):
        self.called += 1
        return self.invoke(self.service.methods_by_name[name], request)


def main():
    orchestrator = Service(sys.argv[1], "foretoken.v1.Orchestrator")
    verifier = Service(sys.argv[2], "foretoken.v1.TargetVerifier")
    drafter = Service(sys.argv[3], "foretoken.v1.DraftWorker")

    pool = orchestrator.call("Describe", {})
    assert pool.target and pool.verifiers[0].ready, pool
    events = list(orchestrator.call("Generate", {"text": "The capital of France is", "max_tokens": 8}))
    kinds = [event.WhichOneof("event") for event in events]
    assert kinds[0] == "started" and kinds[-1] == "finished", kinds
    text = "".join(token.text for event in events for token in event.tokens.tokens)
    assert "Paris" in text, text

    target = verifier.call("Describe", {})
    assert target.model == pool.target and len(target.model_fingerprint) == 64, target
    bundle = b"".join(chunk.data for chunk in verifier.call("Tokenizer", {}))
    assert len(bundle) > 1000

    # The verifier's conversation by hand: judge one token behind a prompt of two.
    prompt = [504, 3575]
    session = {"session_id": "python", "prompt": prompt, "reserve_len": 8, "rule": 1,
               "model_fingerprint": target.model_fingerprint, "tokenizer_fingerprint": target.tokenizer_fingerprint}
    frame_text = {"seq": 1, "committed_len": 2, "start": 2, "start_hash": text_hash(prompt)}
    replies = list(verifier.call("Verify", [
        {"open": {"session": session, "verifier_key": bytes(32)}},
        {"frame": {"text": frame_text, "block": {"tokens": [282]}}},
    ]))
    kinds = [reply.WhichOneof("kind") for reply in replies]
    assert kinds == ["opened", "verdict"], replies
    verdict = replies[1].verdict
    assert len(verdict.thresholds) == 1 and 0 <= verdict.thresholds[0] <= 1, verdict

    guesser = drafter.call("Describe", {})
    assert guesser.model == "ngram" and not guesser.model_fingerprint, guesser
    assert list(drafter.call("Tokenizer", {})) == []
    prompt = [5, 6, 7, 5, 6]
    session = {"session_id": "python", "prompt": prompt, "reserve_len": 16, "rule": 1}
    frame_text = {"seq": 1, "committed_len": 5, "start": 5, "start_hash": text_hash(prompt)}
    replies = list(drafter.call("Draft", [
        {"open": {"session": session, "draft_key": bytes(32)}},
        {"frame": {"text": frame_text, "draft_len": 2}},
    ]))
    assert [reply.WhichOneof("kind") for reply in replies] == ["opened", "drafted"], replies
    assert list(replies[1].drafted.tokens) == [7, 5], replies

    called = orchestrator.called + verifier.called + drafter.called
    print(f"{called} methods called, all by reflection; the answer began {text!r}")


main()
