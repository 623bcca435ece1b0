//! `--runtime-option`: where the libraries of runtimes are, and how runtimes use the machine.

use std::path::PathBuf;

use planish_artifact::backend::{RuntimeSettings, Spin};
use planish_runtimes::openvino::InferencePrecision;
use planish_runtimes::tensorrt::{KernelSpecialization, LoadOptions, WeightStreamingBudget};

use super::keys::{Key, KeyArguments, Keyed, put};
use super::terminal::warn;

/// The settings of runtimes, of which a command takes the first `KEYS` ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RuntimeOptions<const KEYS: usize> {
    ort_lib: Option<PathBuf>,
    trt_lib: Option<PathBuf>,
    openvino_lib: Option<PathBuf>,
    openvino_precision: Option<InferencePrecision>,
    /// How idle threads of ONNX Runtime wait.
    pub(super) spin: Option<Spin>,
    cuda_graph: Option<bool>,
    weight_streaming_budget: Option<WeightStreamingBudget>,
    pub(super) kernel_specialization: Option<KernelSpecialization>,
}

/// The option of a command that finds libraries, and leaves to runtimes how they use the machine.
pub(super) type LibraryArguments = KeyArguments<RuntimeOptions<3>>;
/// The option of a command that runs models on the processor.
pub(super) type ProcessorArguments = KeyArguments<RuntimeOptions<5>>;
/// The option of a command that runs artifacts.
pub(super) type RuntimeArguments = KeyArguments<RuntimeOptions<8>>;

impl<const KEYS: usize> RuntimeOptions<KEYS> {
    const ALL: &'static [Key<Self>] = &[
        Key {
            name: "ort-lib",
            value: "PATH",
            help: "ONNX Runtime's library [PLANISH_ORT_LIB or searched]",
            set: |it, _, text| put(&mut it.ort_lib, text),
        },
        Key {
            name: "trt-lib",
            value: "PATH",
            help: "TensorRT's library [PLANISH_TRT_LIB or searched]",
            set: |it, _, text| put(&mut it.trt_lib, text),
        },
        Key {
            name: "openvino-lib",
            value: "PATH",
            help: "OpenVINO's library [PLANISH_OPENVINO_LIB or searched]",
            set: |it, _, text| put(&mut it.openvino_lib, text),
        },
        Key {
            name: "openvino-precision",
            value: "TYPE",
            help: "what OpenVINO computes products in: f32 or bf16 [bf16 of an artifact of --bf16, else f32]",
            set: |it, _, text| put(&mut it.openvino_precision, text),
        },
        Key {
            name: "spin",
            value: "MICROSECONDS",
            help: "how long idle threads of ONNX Runtime poll. 0 or false: they sleep at once; true: as long as ONNX Runtime's default. bench \
                   takes true and false [bench, profile: 0; run, generate, predict: 100, or 0 beside busy programs; else true]",
            set: |it, _, text| put(&mut it.spin, text),
        },
        Key {
            name: "cuda-graph",
            value: "false",
            help: "record no CUDA graph, on cuda* and trt",
            set: |it, _, text| super::keys::switch(text).map(|value| it.cuda_graph = Some(value)),
        },
        Key {
            name: "weight-streaming-budget",
            value: "BUDGET",
            help: "the weights on the GPU, on trt: -2 (all), -1 (TensorRT chooses), 25%, 512M or the like",
            set: |it, _, text| put(&mut it.weight_streaming_budget, text),
        },
        Key {
            name: "kernel-specialization",
            value: "WHEN",
            help: "when TensorRT-RTX compiles kernels for new shapes: eager, lazy or none [eager; generate: none]",
            set: |it, _, text| put(&mut it.kernel_specialization, text),
        },
    ];

    /// Refuses a time of polling, where a command only tells whether idle threads poll.
    ///
    /// # Errors
    /// When there is one.
    pub(super) fn check_untimed(&self) -> Result<(), String> {
        match self.spin {
            Some(Spin::Microseconds(number @ 1..)) => Err(format!(
                "--runtime-option spin={number}: expected true or false, because figures tell only whether idle threads poll"
            )),
            _ => Ok(()),
        }
    }

    /// How runtimes are found, with what the user chose.
    pub(super) fn settings(&self) -> RuntimeSettings {
        let usual = LoadOptions { warn, ..LoadOptions::default() };
        let engines = LoadOptions {
            cuda_graph: self.cuda_graph.unwrap_or(usual.cuda_graph),
            weight_streaming_budget: self.weight_streaming_budget.unwrap_or(usual.weight_streaming_budget),
            kernel_specialization: self.kernel_specialization.unwrap_or(usual.kernel_specialization),
            ..usual
        };
        let settings = RuntimeSettings {
            ort_library: self.ort_lib.clone(),
            trt_library: self.trt_lib.clone(),
            openvino_library: self.openvino_lib.clone(),
            openvino_precision: self.openvino_precision,
            engines,
            ..RuntimeSettings::default()
        };
        self.spin.map_or(settings.clone(), |spin| spin.applied(settings))
    }

    /// The same, where idle threads sleep unless the user says otherwise.
    pub(super) fn sleeping(&self) -> RuntimeSettings {
        let settings = self.settings();
        RuntimeSettings { sleeping: settings.sleeping || self.spin.is_none(), ..settings }
    }
}

impl<const KEYS: usize> Keyed for RuntimeOptions<KEYS> {
    const OPTION: &'static str = "runtime-option";
    const HEADING: Option<&'static str> = Some("Runtimes");
    const HELP: &'static str = "How the runtime is found and runs; defaults are in brackets. The keys are";
    const KEYS: &'static [Key<Self>] = Self::ALL.split_at(KEYS).0;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RuntimeOptions<8>, String> {
        RuntimeOptions::read([text])
    }

    #[test]
    fn each_key_sets_what_the_runtime_takes() {
        let all = "ort-lib=a,b.so,trt-lib=c,openvino-lib=d,openvino-precision=bf16,cuda-graph=false,weight-streaming-budget=-1,kernel-specialization=lazy,spin=50";
        let settings = read(all).unwrap().settings();
        assert_eq!(settings.ort_library, Some("a,b.so".into()));
        assert_eq!(settings.trt_library, Some("c".into()));
        assert_eq!(settings.openvino_library, Some("d".into()));
        assert_eq!(settings.openvino_precision, Some(InferencePrecision::Bf16));
        assert_eq!((settings.sleeping, settings.polling_us), (false, Some(50)));
        assert!(!settings.engines.cuda_graph);
        assert_eq!(settings.engines.weight_streaming_budget, WeightStreamingBudget::Automatic);
        assert_eq!(settings.engines.kernel_specialization, KernelSpecialization::Lazy);
        let usual = RuntimeOptions::<8>::default().settings();
        assert!(usual.engines.cuda_graph && !usual.sleeping && usual.polling_us.is_none());
    }

    #[test]
    fn threads_sleep_as_the_user_says() {
        let waits = |text: &str| {
            let options = read(text).unwrap();
            [options.settings(), options.sleeping()].map(|settings| (settings.sleeping, settings.polling_us))
        };
        assert_eq!(waits("cuda-graph=true"), [(false, None), (true, None)]);
        assert_eq!(waits("spin=true"), [(false, None); 2]);
        assert_eq!(waits("spin=7"), [(false, Some(7)); 2]);
        assert_eq!(
            ["spin=1", "spin=0", "spin=true"].map(|text| read(text).unwrap().check_untimed().is_err()),
            [true, false, false]
        );
        assert_eq!([waits("spin=0"), waits("spin=false")], [[(true, Some(0)); 2]; 2]);
    }

    #[test]
    fn wrong_values_and_keys_are_refused() {
        let wrong = |text: &str, part: &str| {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        wrong("spin=1000001", "spin=1000001: expected microseconds from 0 to 1000000");
        wrong("spin", "spin has no value; write spin=MICROSECONDS");
        wrong("cuda-graph=0", "expected true or false");
        wrong("weight-streaming-budget=200%", "a share such as 25%");
        wrong("kernel-specialization=sometimes", "expected eager");
        wrong("openvino-precision=f16", "expected f32 or bf16");
        wrong("spin=1,spin=2", "has `spin` twice");
        wrong(
            "threads=2",
            "has no key `threads`; its keys are ort-lib=PATH, trt-lib=PATH, openvino-lib=PATH, openvino-precision=TYPE, spin=",
        );
    }

    /// A command takes the keys that it has a use for.
    #[test]
    fn commands_have_their_own_keys() {
        let names = |keys: usize| RuntimeOptions::<8>::KEYS[..keys].iter().map(|key| key.name).collect::<Vec<_>>();
        assert_eq!(names(3), ["ort-lib", "trt-lib", "openvino-lib"]);
        let error = RuntimeOptions::<3>::read(["spin=1"]).unwrap_err();
        assert!(error.ends_with("its keys are ort-lib=PATH, trt-lib=PATH, openvino-lib=PATH"), "{error}");
        assert!(RuntimeOptions::<5>::read(["spin=1"]).is_ok());
        assert!(RuntimeOptions::<5>::read(["cuda-graph=false"]).unwrap_err().contains("no key `cuda-graph`"));
    }
}
