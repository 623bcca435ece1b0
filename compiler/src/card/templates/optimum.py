{% if not processor %}
import torch
{% elif processor == "AutoFeatureExtractor" %}
import numpy as np
{% endif %}
from optimum.onnxruntime import {{ class }}
{% if processor == "AutoImageProcessor" %}
from PIL import Image
{% endif %}
{% if processor %}
from transformers import {{ processor }}
{% endif %}

model = {{ class }}.from_pretrained(".")
{% if processor == "AutoTokenizer" %}
tokenizer = AutoTokenizer.from_pretrained(".")
inputs = tokenizer({{ text }}, return_tensors="pt")
{% elif processor == "AutoImageProcessor" %}
processor = AutoImageProcessor.from_pretrained(".")
inputs = processor(Image.open("picture.png").convert("RGB"), return_tensors="pt")
{% elif processor == "AutoFeatureExtractor" %}
processor = AutoFeatureExtractor.from_pretrained(".")
samples = np.zeros(processor.sampling_rate, np.float32)  # of a recording
inputs = processor(samples, sampling_rate=processor.sampling_rate, return_tensors="pt")
{% else %}
inputs = {
{% for name, value in tensors %}
    {{ name }}: {{ value }},
{% endfor %}
}
{% endif %}
{% if generates %}
ids = model.generate(**inputs, max_new_tokens=20)
{% if processor == "AutoTokenizer" %}
print(tokenizer.decode(ids[0], skip_special_tokens=True))
{% else %}
print(ids)
{% endif %}
{% else %}
for name, output in model(**inputs).items():
    if hasattr(output, "shape"):
        print(name, tuple(output.shape))
{% endif %}
