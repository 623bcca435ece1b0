//! Programs in C with the library: built with all warnings, run as they are and with AddressSanitizer.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use planish_testing::scratch;

/// The sanitizers that find what C does wrong with the library, and what either side leaks.
const SANITIZED: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of the shared library, which Cargo builds beside the tests.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Builds a program of C into a folder, with more flags of the compiler.
fn built(source: &str, folder: &Path, flags: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let done = Command::new("gcc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"])
        .args(flags)
        .arg(repository().join(source))
        .arg("-I")
        .arg(repository().join("capi/include"))
        .arg("-L")
        .arg(libraries())
        .args(["-lplanish_c", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

fn run(program: &Path, arguments: &[&Path], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied()).current_dir(repository());
    command.env("LD_LIBRARY_PATH", libraries()).output().unwrap()
}

fn lines(done: &Output) -> Vec<&str> {
    std::str::from_utf8(&done.stdout).unwrap().lines().collect()
}

/// Runs the example, which compiles a golden into `artifact`.
fn embed(folder: &Path, artifact: &Path, flags: &[&str]) -> Output {
    let program = built("examples/c/embed.c", folder, flags);
    let golden = repository().join("fixtures/goldens/bert-sentence");
    run(&program, &[&golden, artifact, Path::new("2"), Path::new("7"), Path::new("3")], &[])
}

#[test]
fn the_example_compiles_opens_and_runs() {
    let folder = scratch();
    let artifact = folder.path().join("artifact");
    let done = embed(folder.path(), &artifact, SANITIZED);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let lines = lines(&done);
    assert_eq!(lines[0], concat!("planish ", env!("CARGO_PKG_VERSION")));
    assert!(lines.contains(&"input input_ids, dtype 5, [-1, -1]"), "{lines:?}");
    let vector = lines.iter().find(|line| line.starts_with("sentence_embedding: ")).unwrap();
    let numbers: Vec<f64> = vector.split(' ').skip(3).map(|number| number.parse().unwrap()).collect();
    assert!(numbers.len() == 4 && numbers.iter().all(|number| number.is_finite() && *number != 0.0), "{vector}");
    assert!(artifact.join("planish.json").is_file());
}

#[test]
fn what_is_refused_has_a_code_and_a_message() {
    let folder = scratch();
    let (artifact, elsewhere) = (folder.path().join("artifact"), folder.path().join("elsewhere"));
    let made = embed(folder.path(), &artifact, &[]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let program = built("capi/tests/refusals.c", folder.path(), SANITIZED);
    let done = run(&program, &[&artifact, &elsewhere, &repository().join("fixtures/goldens/bert")], &[]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let lines = lines(&done);
    let mut expected = REFUSALS.iter();
    for (line, (beginning, end)) in lines.iter().zip(&mut expected) {
        assert!(line.starts_with(beginning) && line.ends_with(end), "{line:?} is not {beginning:?} ... {end:?}");
    }
    assert_eq!((lines.len(), expected.len()), (REFUSALS.len(), 0), "{lines:?}");
    assert!(!elsewhere.exists());
}

/// How the lines of refusals.c begin and end.
const REFUSALS: &[(&str, &str)] = &[
    ("open nowhere: 1: there is no folder ", "elsewhere; `planish compile` makes artifacts"),
    ("model of nowhere: ", "NULL"),
    ("open NULL: 2: ", "folder is NULL; pass a text that ends in a zero byte"),
    ("open into NULL: 2: ", "model is NULL; pass the address of a pointer"),
    ("open empty: 2: ", "folder is an empty text; pass a path"),
    ("compile NULL: 2: ", "source is NULL; pass a text that ends in a zero byte"),
    ("compile into NULL: 2: ", "folder is NULL; pass a text that ends in a zero byte"),
    ("compile nothing: 1: ", ""),
    ("compile with NULL: 2: ", "recipe is NULL, and its number of elements is 1, not 0"),
    ("precision: 2: ", ""),
    ("target: 2: ", ""),
    ("word: 2: ", "recipe[0] is NULL; pass a text that ends in a zero byte"),
    ("engines: 1: target trt has engines", ""),
    ("not UTF-8: 2: ", "recipe[0] is not UTF-8"),
    ("verify nowhere: 1: ", ""),
    ("verify NULL: 2: ", "folder is NULL; pass a text that ends in a zero byte"),
    ("open: 0: ", ""),
    ("run NULL: 2: ", "model is NULL; pass what planish_open gave"),
    ("run into NULL: 2: ", "results is NULL; pass the address of a pointer"),
    ("inputs NULL: 2: ", "inputs is NULL, and its number of elements is 1, not 0"),
    ("no input: 1: the inputs `input_ids`, ", ""),
    ("twice: 2: ", "inputs[1] is `input_ids`, which was given before; give it once"),
    ("name: 1: there is no input `words`; the inputs are input_ids: i64", ""),
    ("name NULL: 2: ", "inputs[0].name is NULL; pass a text that ends in a zero byte"),
    ("dtype: 1: ", "was given f64[1, 3]"),
    ("dtype unknown: 2: inputs[0].dtype of `input_ids` is 0; ", ""),
    ("rank: 1: ", ""),
    ("shape NULL: 2: ", "inputs[0].shape of `input_ids` is NULL, and its number of elements is 1, not 0"),
    ("bytes: 2: ", "inputs[0].bytes of `input_ids` is 16, and i64[1, 3] has 24 bytes"),
    ("data NULL: 2: ", "inputs[0].data of `input_ids` is NULL, and its number of elements is 24, not 0"),
    ("id: 1: `input_ids` is 1000000 at [0, 2]: the model takes 0 to ", " there"),
    ("beyond: ", "1 1"),
    ("run: 0: ", ""),
    ("results: ", " outputs"),
    ("named: ", "1 1"),
    ("result beyond: ", "1"),
    ("of NULL: ", "0 0 0 1 1 1"),
];

#[test]
fn a_runtime_that_is_not_there_has_the_code_4() {
    let folder = scratch();
    let artifact = folder.path().join("artifact");
    assert_eq!(embed(folder.path(), &artifact, &[]).status.code(), Some(0));
    let program = built("examples/c/embed.c", folder.path(), &[]);
    let golden = repository().join("fixtures/goldens/bert-sentence");
    let missing = [("PLANISH_ORT_LIB", "/nowhere")];
    let done = run(&program, &[&golden, &artifact, Path::new("2")], &missing);
    let message = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(4), "{message}");
    assert!(message.contains("cannot open the artifact (code 4)") && message.contains("/nowhere"), "{message}");
}

/// Weights that stand in the graph as in the checkpoint get another first number.
fn spoil(artifact: &Path) {
    let stored = fs::read(repository().join("fixtures/goldens/bert-sentence/model.safetensors")).unwrap();
    let path = artifact.join("model.onnx");
    let mut graph = fs::read(&path).unwrap();
    let windows = stored.chunks_exact(64).rev().step_by(40);
    let places: Vec<usize> = windows.filter_map(|part| graph.windows(64).position(|window| window == part)).collect();
    assert!(!places.is_empty());
    for place in places {
        graph[place..place + 4].copy_from_slice(&50f32.to_le_bytes());
    }
    fs::write(&path, graph).unwrap();
}

#[test]
fn a_changed_artifact_has_the_code_3() {
    let folder = scratch();
    let artifact = folder.path().join("artifact");
    assert_eq!(embed(folder.path(), &artifact, &[]).status.code(), Some(0));
    let program = built("capi/tests/verify.c", folder.path(), &[]);
    assert_eq!(lines(&run(&program, &[&artifact], &[])), ["0: "]);
    spoil(&artifact);
    let done = run(&program, &[&artifact], &[]);
    assert!(lines(&done)[0].starts_with("3: verification failed:"), "{done:?}");
}

#[test]
fn threads_share_a_model_and_have_errors_of_their_own() {
    let folder = scratch();
    let artifact = folder.path().join("artifact");
    assert_eq!(embed(folder.path(), &artifact, &[]).status.code(), Some(0));
    let program = built("capi/tests/threads.c", folder.path(), &[]);
    let done = run(&program, &[&artifact], &[]);
    assert_eq!((done.status.code(), lines(&done)), (Some(0), vec!["0 failures, results differ: 1"]), "{done:?}");
}
