{% if values %}
import numpy as np
{% endif %}
import onnxruntime
{% if values and text %}
from tokenizers import Tokenizer
{% endif %}

{% if values %}
session = onnxruntime.InferenceSession({{ parts[0].file }}{{ providers }})
{% if text %}
encoding = Tokenizer.from_file("tokenizer.json").encode({{ text }})
{% endif %}
inputs = {
{% for name, value in values %}
    {{ name }}: {{ value }},
{% endfor %}
}
{% if cache %}
for port in session.get_inputs():  # the cache, empty before the first token
    if port.name not in inputs:
        shape = [size if isinstance(size, int) else int(size == {{ rows }}) for size in port.shape]
        inputs[port.name] = np.zeros(shape, {{ cache }})
{% endif %}
for port, output in zip(session.get_outputs(), session.run(None, inputs)):
    print(port.name, output.dtype, output.shape)
{% else %}
for file in [{% for part in parts %}{{ part.file }}{% if not loop.last %}, {% endif %}{% endfor %}]:
    session = onnxruntime.InferenceSession(file{{ providers }})
    for port in session.get_inputs() + session.get_outputs():
        print(file, port.name, port.type, port.shape)
{% endif %}
