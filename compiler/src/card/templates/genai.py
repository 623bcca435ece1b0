{% if not text %}
import numpy as np
{% endif %}
import onnxruntime_genai

model = onnxruntime_genai.Model(".")
{% if speech %}
recording = onnxruntime_genai.Audios.open("recording.wav")
processor = model.create_multimodal_processor()
inputs = processor(["<|startoftranscript|><|en|><|transcribe|>"], audios=recording)
params = onnxruntime_genai.GeneratorParams(model)
generator = onnxruntime_genai.Generator(model, params)
generator.set_inputs(inputs)
{% else %}
params = onnxruntime_genai.GeneratorParams(model)
params.set_search_options(max_length={{ max_length }})
generator = onnxruntime_genai.Generator(model, params)
{% if text %}
tokenizer = onnxruntime_genai.Tokenizer(model)
generator.append_tokens(tokenizer.encode({{ text }}))
{% else %}
generator.append_tokens(np.array([[1, 2, 3]], np.int32))
{% endif %}
{% endif %}
while not generator.is_done():
    generator.generate_next_token()
{% if speech %}
print(processor.decode(generator.get_sequence(0)))
{% elif text %}
print(tokenizer.decode(generator.get_sequence(0)))
{% else %}
print(generator.get_sequence(0))
{% endif %}
