"""Serving models over HTTP by the Open Inference Protocol, and what all of OneIR's servers have in common.

app = create_app([Served("resnet", Runner(oneir.load("resnet.onnx")))])
listen(app, "127.0.0.1", 8000)
"""
