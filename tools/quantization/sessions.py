"""Models that are ready to run: ONNX files on ONNX Runtime, OpenVINO's .xml files on OpenVINO; both on the CPU."""

from pathlib import Path


class OnnxSession:
    """A model on ONNX Runtime with default options, except that idle threads sleep unless they are to spin."""

    def __init__(self, path: Path, threads: int, spin=False):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.names = [port.name for port in self.session.get_inputs()]
        outputs = [port.name for port in self.session.get_outputs()]
        self.output = ["last_hidden_state" if "last_hidden_state" in outputs else outputs[0]]
        self.precision = "as stored"

    def run(self, inputs):
        return self.session.run(self.output, inputs)[0]


class OpenVinoSession:
    """A model on OpenVINO with its latency settings. Without a precision OpenVINO chooses, bfloat16 on some processors."""

    def __init__(self, path: Path, threads: int, precision=None):
        import openvino

        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        if precision:
            settings["INFERENCE_PRECISION_HINT"] = precision
        self.model = openvino.compile_model(str(path), "CPU", settings)
        self.request = self.model.create_infer_request()
        self.names = [port.get_any_name() for port in self.model.inputs]
        self.precision = self.model.get_property("INFERENCE_PRECISION_HINT").get_type_name()

    def run(self, inputs):
        return self.request.infer(inputs, share_inputs=True, share_outputs=False)[0]


def load(path: Path, threads: int, openvino=False, **settings):
    """The model of a file on the runtime of its ending, or an ONNX file on OpenVINO."""
    return (OpenVinoSession if openvino or path.suffix == ".xml" else OnnxSession)(path, threads, **settings)
