//! The binary, checkpoints that tests edit, and what is in files and folders.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use planish::backend::{self, BACKENDS};
use planish::compile::{CompileOptions, Compiled, compile};
use planish::request::Silent;
use planish::source::SourceModel;
use planish_eval::Tensor;
use planish_ir::DType;
use planish_onnx::DEFAULT_OPSET;
use planish_passes::{ONNX, ORT, ORT_CUDA, TRT, Target};
use planish_runtimes::SessionOptions;
use planish_runtimes::ort::{OnnxRuntime, OrtOptions};
pub(crate) use planish_testing::{contents, names, scratch, skipped};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The folder of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of a golden.
pub(crate) fn golden(name: &str) -> PathBuf {
    repository().join("fixtures/goldens").join(name)
}

/// The binary with arguments, its outputs to be captured.
pub(crate) fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_planish"));
    command.args(arguments).stdin(Stdio::null());
    // A test that means no model of the hub asks no server, and finds none that a person downloaded.
    command.env("HF_HUB_OFFLINE", "1").env("HF_HUB_CACHE", "/nowhere/hub");
    command
}

/// What a finished command left.
pub(crate) struct Done {
    /// The exit code; absent where a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is text");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Is in the warning of a calibration on few samples.
pub(crate) const FEW_SAMPLES: &str = ", and what it measures on so few may not hold for others";

impl Done {
    /// Asserts the exit code and that the error output has each of some parts, is not a panic's, and
    /// says no cause twice.
    #[track_caller]
    pub(crate) fn exits(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        let repeats = |line: &str| line.matches("os error").count() > 1;
        assert!(!self.stderr.lines().any(repeats), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        }
        self
    }

    /// Asserts that all went well and nothing was warned of, but for the few samples that tests calibrate on.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        let done = self.exits(0, &[]);
        let other: Vec<&str> = done.stderr.lines().filter(|line| !line.contains(FEW_SAMPLES)).collect();
        assert_eq!(other, [""; 0]);
        done
    }
}

/// Runs the binary.
pub(crate) fn planish<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Done {
    command(arguments).output().unwrap().into()
}

/// The same with variables of the environment.
pub(crate) fn planish_with<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    variables: &[(&str, &str)],
) -> Done {
    command(arguments).envs(variables.iter().copied()).output().unwrap().into()
}

/// A shell script in a namespace of its own, in which it may mount: the binary is `$0`, the model `$1`, and an empty
/// folder `$2`.
fn in_namespace(script: &str) -> io::Result<Done> {
    let place = scratch();
    // Others than root may mount some filesystems where they are root of a namespace.
    let user: &[&str] = if fs::metadata("/proc/self")?.uid() == 0 { &[] } else { &["--map-root-user"] };
    let done = Command::new("unshare")
        .args(user)
        .args(["--mount", "sh", "-c", script])
        .args([Path::new(env!("CARGO_BIN_EXE_planish")), &golden("bert"), place.path()])
        .output();
    Ok(done?.into())
}

/// Runs a script where a filesystem with the given mount options is at `$2`. `None` where this user may not mount
/// at all; where the user may, the script runs, so that no case is left out for another reason.
pub(crate) fn mounted(options: &str, script: &str) -> Option<Done> {
    const MOUNTED: &str = "mounted\n";
    static ALLOWED: LazyLock<Result<(), String>> = LazyLock::new(|| {
        let done = in_namespace("mount -t tmpfs none \"$2\" && echo mounted").map_err(|e| e.to_string())?;
        if done.stdout == MOUNTED { Ok(()) } else { Err(done.stderr) }
    });
    if let Err(reason) = &*ALLOWED {
        skipped(&format!("no filesystem can be mounted here: {reason}"));
        return None;
    }
    let done = in_namespace(&format!("mount -t tmpfs -o {options} none \"$2\" && echo mounted && {script}")).unwrap();
    let rest = done.stdout.strip_prefix(MOUNTED).unwrap_or_else(|| panic!("not mounted: {}", done.stderr));
    Some(Done { stdout: rest.to_owned(), ..done })
}

/// `planish compile MODEL -o FOLDER`, with more arguments.
pub(crate) fn planish_compile(model: &Path, folder: &Path, more: &[&str]) -> Done {
    planish(
        [OsStr::new("compile"), model.as_os_str(), OsStr::new("-o"), folder.as_os_str()]
            .into_iter()
            .chain(more.iter().map(OsStr::new)),
    )
}

/// The targets whose graphs are ONNX files.
pub(crate) const ONNX_TARGETS: [&Target; 4] = [&ONNX, &ORT, &ORT_CUDA, &TRT];

/// The targets whose graphs run on CPUs.
pub(crate) const CPU_TARGETS: [&Target; 2] = [&ONNX, &ORT];

/// Goldens with linear attention that is not products of all queries with all keys, which target `cuda` refuses.
pub(crate) const RECURRENT: [&str; 6] = ["falcon-mamba", "jamba", "mamba", "qwen3-5", "qwen3-5-moe", "qwen3-next"];

/// Goldens of models of images.
pub(crate) const IMAGES: [&str; 16] = [
    "beit",
    "convnext",
    "deit",
    "depth-anything",
    "detr",
    "dinov2",
    "dinov2-registers",
    "dinov3",
    "dpt",
    "resnet",
    "segformer",
    "swin",
    "swinv2",
    "vit",
    "vitpose",
    "yolos",
];

/// Goldens of models of recordings, which take no ids.
pub(crate) const SOUNDS: [&str; 6] = ["ast", "hubert", "parakeet", "wav2vec2", "wav2vec2-bert", "wavlm"];

/// Those that take waveforms, for which an engine needs to know how many samples there are.
const WAVEFORMS: [&str; 3] = ["hubert", "wav2vec2", "wavlm"];

/// Those that take images of any size, for which an engine needs to know sizes.
const OF_ANY_SIZE: [&str; 6] = ["convnext", "depth-anything", "detr", "resnet", "segformer", "yolos"];

/// Options with the sizes that engines of a golden need.
pub(crate) fn with_sizes(model: &Path, options: &CompileOptions) -> CompileOptions {
    let name = model.file_name().unwrap().to_string_lossy();
    let sizes = match &*name {
        "sam" => "batch_size=1:2:8,point_batch_size=1:2:3,nb_points_per_image=1:4:8",
        "clap" => "batch_size=1:2:8,num_frames=1:61:64,text_batch_size=1:3:8,sequence_length=1:9:16",
        "parakeet" | "wav2vec2-bert" => "batch_size=1:2:8,sequence_length=1:22:64",
        name if WAVEFORMS.contains(&name) => "batch_size=1:2:8,sequence_length=400:800:1600",
        name if OF_ANY_SIZE.contains(&name) => "batch_size=1:2:8,height=32,width=32",
        _ => "",
    };
    let needs = options.backend.target == &TRT && !sizes.is_empty();
    let profiles = if needs { vec![sizes.parse().unwrap()] } else { Vec::new() };
    CompileOptions { profiles, ..options.clone() }
}

/// The options of `planish compile --debug strict,verify` for a target.
pub(crate) fn options(target: &'static Target) -> CompileOptions {
    let backend = backend::find(target.name, BACKENDS).unwrap();
    CompileOptions { strict: true, verify_passes: true, ..CompileOptions::new(backend, DEFAULT_OPSET) }
}

/// How sessions of tests are loaded.
pub(crate) const ONE_THREAD: SessionOptions = SessionOptions { threads: 1 };

/// ONNX Runtime on CPUs as artifacts run on it.
pub(crate) fn onnx_runtime() -> OnnxRuntime {
    OnnxRuntime::new(None).options(OrtOptions { spin: false, ..OrtOptions::compiled() })
}

/// Compiles in this process.
pub(crate) fn compiled(model: &Path, folder: &Path, options: &CompileOptions) -> Compiled {
    compile(&SourceModel::open(model).unwrap(), folder, options, &Silent).unwrap()
}

/// A golden compiled into a folder of its own.
pub(crate) fn artifact(name: &str) -> (TempDir, PathBuf) {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden(name), &out, &[]).succeeds();
    (folder, out)
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A stored tensor.
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// The tensors of a safetensors file.
pub(crate) fn tensors(path: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    let stored = |t: TensorView<'_>| Stored { dtype: t.dtype(), shape: t.shape().to_vec(), bytes: t.data().to_vec() };
    SafeTensors::deserialize(&bytes).unwrap().iter().map(|(name, t)| (name.to_owned(), stored(t))).collect()
}

/// Writes a safetensors file.
pub(crate) fn write_tensors(path: &Path, tensors: &BTreeMap<String, Stored>) {
    let views = tensors.iter().map(|(n, t)| (n, TensorView::new(t.dtype, t.shape.clone(), &t.bytes).unwrap()));
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// The tensors whose names have a prefix, without it, as the interpreter takes them.
pub(crate) fn numbered(path: &Path, prefix: &str) -> Vec<(String, Tensor)> {
    let tensor = |stored: Stored| {
        let dtype = match stored.dtype {
            Dtype::I64 => DType::I64,
            Dtype::F32 => DType::F32,
            other => panic!("fixtures have no {other:?}"),
        };
        Tensor::from_bytes(dtype, stored.shape, &stored.bytes).unwrap()
    };
    let named =
        tensors(path).into_iter().filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_owned(), tensor(t))));
    named.collect()
}

/// A checkpoint in memory.
pub(crate) struct Draft {
    pub(crate) config: Value,
    pub(crate) tensors: BTreeMap<String, Stored>,
}

impl Draft {
    /// A copy of a golden.
    pub(crate) fn of(name: &str) -> Self {
        let folder = golden(name);
        Self {
            config: serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap(),
            tensors: tensors(&folder.join("model.safetensors")),
        }
    }

    /// Writes it into a folder, which is made; returns that.
    pub(crate) fn write(&self, folder: PathBuf) -> PathBuf {
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        write_tensors(&folder.join("model.safetensors"), &self.tensors);
        folder
    }
}

/// The token that a text begins with, of id 1.
const BEGIN: &str = "<s>";

/// The word of a token of [`write_tokenizer`].
pub(crate) fn word(id: i64) -> String {
    if id == 1 { BEGIN.to_owned() } else { format!("w{id}") }
}

/// Writes a tokenizer of so many tokens, which are words, into a folder. Words that it does not know are `w0`.
pub(crate) fn write_tokenizer(folder: &Path, tokens: i64) {
    let vocabulary: serde_json::Map<String, Value> = (0..tokens).map(|id| (word(id), json!(id))).collect();
    let special = json!({
        "id": 1, "content": BEGIN, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    });
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BEGIN: {"id": BEGIN, "ids": [1], "tokens": [BEGIN]}},
        },
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    });
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// Writes model.safetensors with these tensors of bfloat16, of which only the headers take space: the numbers are zeros that no block of
/// the disk has. Returns the number of their bytes.
pub(crate) fn write_sparse(folder: &Path, tensors: Vec<(String, Vec<u64>)>) -> u64 {
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in tensors {
        let begin = end;
        end += 2 * shape.iter().product::<u64>();
        header.insert(name, json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}));
    }
    let header = Value::Object(header).to_string();
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let path = folder.join("model.safetensors");
    fs::write(&path, &start).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_len(start.len() as u64 + end).unwrap();
    end
}
