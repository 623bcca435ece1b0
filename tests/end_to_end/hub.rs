//! Models by their names on the hub: a server on this machine in its place.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use planish_testing::hub::{COMMIT, Fault, Server};
use safetensors::SafeTensors;
use serde_json::{Map, Value, json};

use crate::manifest::{problems, schema_in};
use crate::support::{Done, command, golden, names, planish, scratch, text};

/// The files of a golden, and a model card.
pub(crate) const ASKED: [&str; 6] = [
    "1_Pooling/config.json",
    "README.md",
    "config.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
];

/// What is in a file that is asked for.
pub(crate) fn content(name: &str) -> Vec<u8> {
    match name {
        "README.md" => b"---\nlicense: other\nlicense_link: LICENSE\n---\n".to_vec(),
        _ => fs::read(golden("bert-sentence").join(name)).unwrap(),
    }
}

/// What a golden has, and what other forms of a model lie beside it.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    let others = ["model.fp16.safetensors", "onnx/model.onnx", "pytorch_model.bin", "tf_model.h5"];
    let own = ASKED.map(|name| (name, content(name)));
    own.into_iter().chain(others.map(|name| (name, b"of another form".to_vec()))).collect()
}

/// The manifest of an artifact.
fn manifest(artifact: &Path) -> Value {
    serde_json::from_slice(&fs::read(artifact.join("planish.json")).unwrap()).unwrap()
}

/// The binary in a folder, with a server as the hub and a cache below the folder.
fn command_at(server: &Server, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.current_dir(folder).env("HF_ENDPOINT", &server.endpoint).env("HF_HUB_CACHE", folder.join("cache"));
    command.env("HF_HUB_OFFLINE", "0").env("HF_HOME", folder.join("home")).env_remove("HF_TOKEN");
    command
}

fn run(server: &Server, folder: &Path, arguments: &[&str]) -> Done {
    command_at(server, folder, arguments).output().unwrap().into()
}

#[test]
fn a_name_is_compiled_from_the_files_that_are_needed() {
    let (server, folder) = (Server::start(&files(), &[]), scratch());
    let done = run(&server, folder.path(), &["compile", "owner/name"])
        .exits(0, &["note: downloading ", " of owner/name (main, commit 0123456789ab), "]);
    assert!(done.stdout.contains("bert for sentence-similarity"), "{}", done.stdout);
    let out = folder.path().join("name-ort");
    assert!(out.join("model.onnx").is_file());
    let written = manifest(&out);
    assert_eq!(written["source"]["hub"], json!({"name": "owner/name", "commit": COMMIT}));
    assert_eq!(problems(&schema_in("manifest.schema.json"), &written), Vec::<String>::new());
    let card = fs::read_to_string(out.join("README.md")).unwrap();
    let link = format!("license_link: \"https://huggingface.co/owner/name/blob/{COMMIT}/LICENSE\"\n");
    assert!(card.contains(&link) && card.contains("\nbase_model: owner/name\n"), "{card}");
    let mut asked: Vec<String> = server
        .requests()
        .iter()
        .filter_map(|r| r.strip_prefix("GET /owner/name/resolve/"))
        .map(|r| r.strip_prefix(COMMIT).unwrap().trim_start_matches('/').to_owned())
        .collect();
    asked.sort();
    assert_eq!(asked, ASKED);

    // The source is found again, by the path of the cache.
    server.forget();
    planish(["verify", text(&out)]).succeeds();
    // A graph has the name of its model.
    let (source, local) = (folder.path().join("source/name"), folder.path().join("local"));
    for name in ASKED {
        fs::create_dir_all(source.join(name).parent().unwrap()).unwrap();
        fs::write(source.join(name), content(name)).unwrap();
    }
    planish(["compile", text(&source), "-o", text(&local)]).succeeds();
    assert_eq!(manifest(&local)["source"].get("hub"), None);
    assert_eq!(fs::read(out.join("model.onnx")).unwrap(), fs::read(local.join("model.onnx")).unwrap());
    assert_eq!(server.requests(), [""; 0]);

    let again = run(&server, folder.path(), &["compile", "owner/name@main", "-o", "again"])
        .exits(0, &["owner/name is taken from the cache of the hub"]);
    assert!(!again.stderr.contains("downloading"), "{}", again.stderr);
    assert_eq!(server.requests(), ["GET /api/models/owner/name/revision/main?blobs=true"]);
}

#[test]
fn offline_the_cache_serves_and_tells_what_is_not_there() {
    let (server, folder) = (Server::start(&files(), &[]), scratch());
    let compile = |offline: &str, out: &str| -> Done {
        let mut command = command_at(&server, folder.path(), &["compile", "owner/name", "-o", out]);
        command.env("HF_HUB_OFFLINE", offline).output().unwrap().into()
    };
    compile("1", "first").exits(
        1,
        &[
            "there is no file or folder owner/name here, and as a name of the hub: owner/name (main) is not in the cache",
            "HF_HUB_OFFLINE forbids to download; unset it, or fetch the model where there is a network, `hf download",
        ],
    );
    compile("0", "second").exits(0, &[]);
    server.forget();
    compile("1", "third").exits(0, &["owner/name is taken from the cache of the hub"]);
    assert_eq!(server.requests(), [""; 0]);
}

#[test]
fn inspect_reads_headers_only() {
    let weights = fs::read(golden("bert").join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(weights[..8].try_into().unwrap());
    let files =
        [("config.json", fs::read(golden("bert").join("config.json")).unwrap()), ("model.safetensors", weights)];
    let (server, folder) = (Server::start(&files, &[]), scratch());
    let inspect = |model: &str| run(&server, folder.path(), &["inspect", model, "--json"]).exits(0, &[]).stdout;
    let shown = inspect("owner/name");
    assert_eq!(server.sent("/bytes/"), header);
    assert_eq!(shown, inspect(text(&golden("bert"))));
}

#[test]
fn a_folder_here_comes_before_a_name() {
    let (server, folder) = (Server::start(&files(), &[]), scratch());
    let here = folder.path().join("owner/name");
    fs::create_dir_all(&here).unwrap();
    for name in names(&golden("bert")) {
        fs::copy(golden("bert").join(&name), here.join(&name)).unwrap();
    }
    let inspect = |more: &[&str]| run(&server, folder.path(), &[&["inspect", "owner/name"], more].concat());
    assert_eq!(inspect(&[]).exits(0, &[]).stderr, "");
    assert_eq!(server.requests(), [""; 0]);
    fs::rename(folder.path().join("owner"), folder.path().join("away")).unwrap();
    inspect(&[]).exits(0, &[]);
    fs::rename(folder.path().join("away"), folder.path().join("owner")).unwrap();
    inspect(&[]).exits(0, &["note: owner/name here was taken, not the model of this name in the cache of the hub"]);
}

#[test]
fn shards_are_those_of_the_index() {
    let weights = fs::read(golden("bert").join("model.safetensors")).unwrap();
    let tensors: Map<String, Value> = SafeTensors::deserialize(&weights)
        .unwrap()
        .names()
        .into_iter()
        .map(|name| (name.to_owned(), json!("model-1-of-1.safetensors")))
        .collect();
    let files = [
        ("config.json", fs::read(golden("bert").join("config.json")).unwrap()),
        ("model-1-of-1.safetensors", weights),
        ("model-2-of-2.safetensors", b"of an older upload".to_vec()),
        ("model.safetensors.index.json", json!({"weight_map": tensors}).to_string().into_bytes()),
    ];
    let (server, folder) = (Server::start(&files, &[]), scratch());
    run(&server, folder.path(), &["compile", "owner/name", "--verify"]).exits(0, &["note: downloading"]);
    assert!(!server.requests().iter().any(|request| request.contains("model-2-of-2")));
}

#[test]
fn what_cannot_be_had_says_what_to_type() {
    let (server, folder) = (Server::start(&[("onnx/model.onnx", vec![0; 10])], &[]), scratch());
    let compile = |arguments: &[&str]| run(&server, folder.path(), &[&["compile"], arguments].concat());
    compile(&["owner/other"])
        .exits(1, &["there is no file or folder owner/other here", "has no model owner/other", "or set HF_TOKEN"]);
    compile(&["owner/name@v9"]).exits(1, &["owner/name has no revision v9"]);
    compile(&["owner/name", "--revision", "v9"]).exits(2, &["--revision is part of the name: OWNER/NAME@REV"]);
    compile(&["owner/name"]).exits(1, &["owner/name: ", "add one of its graphs to the name: onnx/model.onnx"]);
    compile(&["owner/name/none.gguf"]).exits(1, &["there is no file none.gguf; there are onnx/model.onnx"]);
    let gated = [Fault::Status { path: "/api/", times: 9, status: 403, headers: "X-Error-Code: GatedRepo\r\n" }];
    let server = Server::start(&[], &gated);
    run(&server, folder.path(), &["compile", "owner/name"])
        .exits(1, &["owner/name is gated: accept its conditions at http://127.0.0.1:"]);
    assert_eq!(names(folder.path()), ["cache"], "no artifact is left");
}

/// The tensors of a Llama of 70B parameters in bfloat16, by shards.
fn llama_70b() -> Vec<Vec<(String, Vec<u64>)>> {
    const HIDDEN: u64 = 8192;
    let layer = |layer: usize| {
        let shapes = [
            ("self_attn.q_proj", vec![HIDDEN, HIDDEN]),
            ("self_attn.k_proj", vec![1024, HIDDEN]),
            ("self_attn.v_proj", vec![1024, HIDDEN]),
            ("self_attn.o_proj", vec![HIDDEN, HIDDEN]),
            ("mlp.gate_proj", vec![28672, HIDDEN]),
            ("mlp.up_proj", vec![28672, HIDDEN]),
            ("mlp.down_proj", vec![HIDDEN, 28672]),
            ("input_layernorm", vec![HIDDEN]),
            ("post_attention_layernorm", vec![HIDDEN]),
        ];
        shapes.map(|(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape)).to_vec()
    };
    let mut shards: Vec<_> = (0..80).map(layer).collect();
    let outer =
        [("model.embed_tokens", vec![32000, HIDDEN]), ("lm_head", vec![32000, HIDDEN]), ("model.norm", vec![HIDDEN])];
    shards.push(outer.map(|(name, shape)| (format!("{name}.weight"), shape)).to_vec());
    shards
}

/// A checkpoint of 138 GB.
pub(crate) struct Large {
    /// Its files, the weights without their bytes.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
    /// How many bytes each of these has.
    pub(crate) sizes: Vec<Fault>,
    /// The bytes of all headers.
    pub(crate) headers: u64,
    /// The bytes of all weights.
    pub(crate) total: u64,
}

/// A Llama of 70B parameters in bfloat16.
pub(crate) fn large_model() -> Large {
    let (mut files, mut sizes, mut map, mut total) = (Vec::new(), Vec::new(), Map::new(), 0);
    for (at, tensors) in llama_70b().into_iter().enumerate() {
        let file: &'static str = Box::leak(format!("model-{:05}-of-00081.safetensors", at + 1).into());
        let (mut header, mut end) = (Map::new(), 0);
        for (name, shape) in tensors {
            let begin = end;
            end += 2 * shape.iter().product::<u64>();
            map.insert(name.clone(), json!(file));
            header.insert(name, json!({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}));
        }
        let header = Value::Object(header).to_string().into_bytes();
        files.push((file, [&(header.len() as u64).to_le_bytes()[..], &header].concat()));
        sizes.push(Fault::Zeros { file, count: end });
        total += end;
    }
    let headers: u64 = files.iter().map(|(_, header)| header.len() as u64).sum();
    let config = json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false,
        "torch_dtype": "bfloat16",
    });
    files.push(("config.json", config.to_string().into_bytes()));
    files.push(("model.safetensors.index.json", json!({"weight_map": map}).to_string().into_bytes()));
    Large { files, sizes, headers, total }
}

/// Only the headers come.
#[test]
fn inspect_of_138_gb_reads_headers_only() {
    let Large { files, sizes, headers, total } = large_model();
    let (server, folder) = (Server::start(&files, &sizes), scratch());
    let done = run(&server, folder.path(), &["inspect", "owner/name", "--json"]).exits(0, &[]);
    let shown: Value = serde_json::from_str(&done.stdout).unwrap();
    // The graph computes in float32, and has the frequencies of a head of 128 features besides.
    assert_eq!(shown["parts"][0]["weights"]["f32"]["elements"], json!(total / 2 + 64), "{}", done.stdout);
    assert!(total > 137_900_000_000, "{total}");
    let sent = server.sent("/bytes/model-");
    assert_eq!(sent, headers, "of {total}");
    assert!(sent < 100_000, "{sent}");
}

/// Waits for something, and fails when it does not come.
fn wait_for(mut is_there: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_there() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn spawn(server: &Server, folder: &Path, out: &str) -> Child {
    let mut command = command_at(server, folder, &["compile", "owner/name", "-o", out]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_killed_download_goes_on_in_the_next_run() {
    let (server, folder) = (Server::start(&files(), &[Fault::Slow]), scratch());
    let mut child = spawn(&server, folder.path(), "out");
    let blobs = folder.path().join("cache/models--owner--name/blobs");
    let incomplete = || {
        let entry = fs::read_dir(&blobs)
            .into_iter()
            .flatten()
            .flatten()
            .find(|entry| entry.path().to_string_lossy().ends_with(".incomplete"));
        entry.map_or(0, |entry| entry.metadata().map_or(0, |metadata| metadata.len()))
    };
    // A file of settings is not large.
    wait_for(|| incomplete() > 4000);
    child.kill().unwrap();
    child.wait().unwrap();
    let have = incomplete();
    assert!(have > 0);
    server.forget();
    run(&server, folder.path(), &["compile", "owner/name"]).exits(0, &[]);
    assert_eq!(server.headers("/bytes/", "range"), [Some(format!("bytes={have}-"))]);
}

#[test]
fn two_processes_download_once() {
    let (server, folder) = (Server::start(&files(), &[Fault::Slow]), scratch());
    for child in ["one", "two"].map(|out| spawn(&server, folder.path(), out)) {
        Done::from(child.wait_with_output().unwrap()).exits(0, &[]);
    }
    let transfers = server.requests().iter().filter(|request| request.contains("/bytes/")).count();
    assert_eq!(transfers, 1);
}
