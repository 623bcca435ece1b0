from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".", backend="onnx")
embeddings = model.encode(["A man plays the guitar.", "Someone makes music.", "It rains."])
print(model.similarity(embeddings, embeddings))
