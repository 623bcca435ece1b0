//! The commands of NVIDIA's tools that build the same engines.

use std::path::Path;

use planish_runtimes::tensorrt::{BuildOptions, ENTERPRISE};

use super::{InputSizes, PartProfile};

/// A command of NVIDIA's tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trtexec {
    /// The words of the command.
    pub words: Vec<String>,
    /// Flags of the builder that the tool has no option for.
    pub without: Vec<&'static str>,
}

/// The tool of TensorRT-RTX, and that of TensorRT.
const TOOL: &str = if ENTERPRISE { "trtexec" } else { "tensorrt_rtx" };

/// The command of NVIDIA's tool that builds an engine of an ONNX file as planish does, and runs nothing.
#[must_use]
pub fn trtexec(onnx: &Path, engine: &Path, profiles: &[PartProfile], options: &BuildOptions) -> Trtexec {
    let mut words = vec![TOOL.to_owned(), format!("--onnx={}", onnx.display())];
    for (index, profile) in profiles.iter().enumerate() {
        if profiles.len() > 1 {
            words.push(format!("--profile={index}"));
        }
        words.push(shapes("--minShapes", profile, |input| &input.min));
        words.push(shapes("--optShapes", profile, |input| &input.opt));
        words.push(shapes("--maxShapes", profile, |input| &input.max));
    }
    if !options.capabilities.is_empty() {
        let numbers: Vec<String> = options.capabilities.iter().map(|c| c.number().to_string()).collect();
        words.push(format!("--computeCapabilities={}", numbers.join(",")));
    }
    if let Some(bytes) = options.workspace {
        // The tool counts in MiB where there is no unit.
        let size = if bytes % (1 << 20) == 0 { (bytes >> 20).to_string() } else { format!("{bytes}B") };
        words.push(format!("--memPoolSize=workspace:{size}"));
    }
    words.extend(options.optimization_level.map(|level| format!("--builderOptimizationLevel={level}")));
    for (given, option) in [
        (!options.tf32, "--noTF32"),
        (options.sparse_weights, "--sparsity=enable"),
        (options.version_compatible, "--versionCompatible"),
        (options.refit, "--refit"),
        (options.strip, "--stripWeights"),
        (options.weight_streaming, "--allowWeightStreaming"),
    ] {
        words.extend(given.then(|| option.to_owned()));
    }
    words.extend(options.aux_streams.map(|streams| format!("--maxAuxStreams={streams}")));
    words.extend(options.tiling.map(|tiling| format!("--tilingOptimizationLevel={}", tiling.trtexec())));
    words.extend(
        options.hardware_compatibility.map(|level| format!("--hardwareCompatibilityLevel={}", level.trtexec())),
    );
    words.extend(options.flags.iter().filter_map(|flag| flag.trtexec.map(str::to_owned)));
    words.push("--profilingVerbosity=detailed".to_owned());
    words.push(format!("--saveEngine={}", engine.display()));
    words.push("--skipInference".to_owned());
    let without = options.flags.iter().filter(|flag| flag.trtexec.is_none()).map(|flag| flag.name).collect();
    Trtexec { words, without }
}

impl Trtexec {
    /// The command as a line of a shell.
    #[must_use]
    pub fn line(&self) -> String {
        self.words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
    }
}

fn shapes(option: &str, profile: &PartProfile, sizes: fn(&InputSizes) -> &[i64]) -> String {
    let one = |input: &InputSizes| {
        let sizes: Vec<String> = sizes(input).iter().map(ToString::to_string).collect();
        // The tool takes a name with its own separators in quotes.
        let name = if input.name.contains([':', ',']) { format!("'{}'", input.name) } else { input.name.clone() };
        format!("{name}:{}", sizes.join("x"))
    };
    format!("{option}={}", profile.inputs.iter().map(one).collect::<Vec<_>>().join(","))
}

/// A word as a shell reads it.
#[must_use]
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
