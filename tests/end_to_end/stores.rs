//! Models by their addresses in object stores and on web servers: a server on this machine in their place.

use std::fs;
use std::path::Path;
use std::process::Command;

use planish_testing::hub::{Fault, Server};
use serde_json::Value;

use crate::hub::{ASKED, Large, files, large_model};
use crate::support::{Done, command, golden, names, planish, scratch, text};

const KEY: &str = "AKIDEXAMPLE";

const FOLDER: &str = "s3://bucket/models/tiny";

/// The variables of stores, which the tests of one machine do not take over from its user.
const VARIABLES: [&str; 12] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL_S3",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
];

/// The binary in a folder, with a server as the store, credentials for it, and caches below the folder.
fn command_at(server: &Server, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).env("HF_HOME", folder.join("home"));
    command.env("AWS_ENDPOINT_URL", &server.endpoint).env("GOOGLE_BASE_URL", &server.endpoint);
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", "secret").env("GOOGLE_SKIP_SIGNATURE", "true");
    command
}

fn run(server: &Server, folder: &Path, arguments: &[&str]) -> Done {
    command_at(server, folder, arguments).output().unwrap().into()
}

#[test]
fn a_folder_of_a_bucket_is_compiled_from_the_files_that_are_needed() {
    let (server, folder) = (Server::private(&files(), &[], Some(KEY)), scratch());
    let done = run(&server, folder.path(), &["compile", FOLDER])
        .exits(0, &["note: downloading ", " of s3://bucket/models/tiny, ", "cache/planish/stores"]);
    assert!(done.stdout.contains("bert for sentence-similarity"), "{}", done.stdout);
    let out = folder.path().join("tiny-ort");
    let got = |server: &Server| {
        let requests = server.requests();
        let mut got: Vec<String> =
            requests.iter().filter_map(|r| r.strip_prefix("GET /bucket/models/tiny/")).map(str::to_owned).collect();
        got.sort();
        got
    };
    assert_eq!(got(&server), ASKED);
    // Pages of three objects.
    assert_eq!(server.requests().iter().filter(|request| request.contains("list-type=2")).count(), 4);

    server.forget();
    planish(["verify", text(&out)]).succeeds();
    run(&server, folder.path(), &["compile", FOLDER, "-o", "again"])
        .exits(0, &["s3://bucket/models/tiny is taken from the cache: "]);
    assert_eq!(got(&server), [""; 0]);
    let graph = |out: &str| fs::read(folder.path().join(out).join("model.onnx")).unwrap();
    assert_eq!(graph("again"), graph("tiny-ort"));

    // Another state of one object.
    let other = fs::read(golden("bert-sentence").join("config.json")).unwrap();
    server.fail(Fault::Replaced { file: "config.json", bytes: [other.as_slice(), b"\n"].concat() });
    run(&server, folder.path(), &["compile", FOLDER, "-o", "third"]).exits(0, &["note: downloading config.json of "]);
    assert_eq!(got(&server), ["config.json"]);
}

#[test]
fn google_and_web_servers_have_folders_too() {
    let (server, folder) = (Server::start(&files(), &[]), scratch());
    let web = format!("{}/files/tiny", server.endpoint);
    let graph = |address: &str, out: &str| {
        run(&server, folder.path(), &["compile", address, "-o", out]).exits(0, &["note: downloading "]);
        fs::read(folder.path().join(out).join("model.onnx")).unwrap()
    };
    assert_eq!(graph("gs://bucket/models/tiny", "google"), graph(&web, "web"));
}

#[test]
fn one_file_brings_what_belongs_to_it() {
    let weights = ["config.json", "model.safetensors"].map(|name| (name, fs::read(golden("bert").join(name)).unwrap()));
    let others = [("other.safetensors", b"of another model".to_vec()), ("onnx/model.onnx", b"a graph".to_vec())];
    let files: Vec<_> = weights.into_iter().chain(others).collect();
    let (server, folder) = (Server::start(&files, &[]), scratch());
    let file = format!("{FOLDER}/model.safetensors");
    let web = format!("{}/files/tiny/model.safetensors?signature=secret", server.endpoint);
    for (address, out) in [(&file, "bucket"), (&web, "web")] {
        let done = run(&server, folder.path(), &["compile", address, "-o", out]).exits(0, &["note: downloading "]);
        assert!(!done.stderr.contains("secret"), "{}", done.stderr);
        assert!(folder.path().join(out).join("model.onnx").is_file());
    }
    assert_eq!(server.sent("/owner/name/other.safetensors"), 0);
    run(&server, folder.path(), &["compile", &format!("{FOLDER}/none.gguf")])
        .exits(1, &["there is no file none.gguf; there are config.json, model.safetensors, other.safetensors"]);
}

#[test]
fn inspect_of_138_gb_in_a_bucket_reads_headers_only() {
    let Large { files, sizes, headers, total } = large_model();
    let (server, folder) = (Server::start(&files, &sizes), scratch());
    let done = run(&server, folder.path(), &["inspect", FOLDER, "--json"]).exits(0, &[]);
    let shown: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(shown["parts"][0]["weights"]["f32"]["elements"], serde_json::json!(total / 2 + 64), "{}", done.stdout);
    let sent = server.sent("/owner/name/model-");
    assert_eq!(sent, headers, "of {total}");
    assert!(sent < 100_000, "{sent}");
}

#[test]
fn what_cannot_be_had_says_what_to_type() {
    let (server, folder) = (Server::private(&files(), &[], Some(KEY)), scratch());
    let compile = |change: &dyn Fn(&mut Command), address: &str, why: &[&str]| {
        let mut command = command_at(&server, folder.path(), &["compile", address]);
        change(&mut command);
        let done: Done = command.output().unwrap().into();
        assert!(!done.exits(1, why).stderr.contains("there is no file or folder"));
    };
    let same: &dyn Fn(&mut Command) = &|_| {};
    compile(
        same,
        "s3://other/models/tiny",
        &["s3://other/models/tiny: ", " has no bucket other: check its name, and AWS_ENDPOINT_URL"],
    );
    compile(
        same,
        "s3://bucket/models/none",
        &["s3://bucket/models/none: there is no object below it; check the bucket and the folder"],
    );
    compile(same, "s3://", &["this is no address: ", "type s3://BUCKET/FOLDER, gs://, az:// or https://HOST/FOLDER"]);
    compile(same, "az://container/model", &["az://container/model: ", "set AZURE_STORAGE_ACCOUNT_NAME"]);
    let key: &dyn Fn(&mut Command) = &|command| _ = command.env("AWS_ACCESS_KEY_ID", "AKIDOTHER");
    compile(
        key,
        FOLDER,
        &["refuses the credentials (InvalidAccessKeyId: The key is not in our records): set AWS_ACCESS_KEY_ID"],
    );
    let half: &dyn Fn(&mut Command) = &|command| _ = command.env_remove("AWS_SECRET_ACCESS_KEY");
    compile(half, FOLDER, &["Missing SecretAccessKey; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"]);
    // The server that gives credentials to the machines of a cloud answers with an error.
    let none: &dyn Fn(&mut Command) = &|command| {
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_METADATA_ENDPOINT", "http://169.254.1.1");
    };
    compile(none, FOLDER, &["s3://bucket/models/tiny: there are no credentials: set AWS_ACCESS_KEY_ID"]);
    let away: &dyn Fn(&mut Command) = &|command| _ = command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    compile(
        away,
        FOLDER,
        &["cannot reach 127.0.0.1:1: ", "check AWS_ENDPOINT_URL where it is set, or copy the folder"],
    );
    assert!(!names(folder.path()).contains(&"tiny-ort".to_owned()), "no artifact is left");
}

#[test]
fn faults_of_a_bucket_are_told() {
    let why = |fault: Fault, why: &[&str]| {
        let (server, folder) = (Server::start(&files(), &[fault]), scratch());
        run(&server, folder.path(), &["compile", FOLDER]).exits(1, why);
    };
    let size = Fault::Size { file: "model.safetensors", listed: Some(7), told: None };
    why(size, &["model.safetensors of s3://bucket/models/tiny: the store lists it with 7 bytes, and says "]);
    let region = "x-amz-bucket-region: eu-west-3\r\n";
    why(
        Fault::Status { path: "/bucket", times: 99, status: 301, headers: region },
        &["the bucket is in another region: set AWS_REGION=eu-west-3"],
    );
    let (server, folder) =
        (Server::start(&files(), &[Fault::Breaks { file: "model.safetensors", times: 1, after: 900 }]), scratch());
    run(&server, folder.path(), &["compile", FOLDER])
        .exits(0, &["model.safetensors: the transfer breaks after 900 bytes"]);
}
