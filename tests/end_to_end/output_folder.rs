//! The output folder: what may be replaced, and disks that are full or read-only, and a kill in
//! mid-write. Whatever happens, nothing half-made is left where an artifact is looked for.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Done, Draft, command, golden, mounted, names, planish_compile, scratch};

#[test]
fn a_folder_that_planish_did_not_write_is_replaced_only_by_force() {
    let folder = scratch();
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    // An empty folder is free.
    planish_compile(&golden("bert"), &out, &[]).succeeds();
    // So is an artifact, and what is beside it stays.
    fs::create_dir(folder.path().join(".out.old")).unwrap();
    fs::write(folder.path().join(".out.old/file"), "").unwrap();
    planish_compile(&golden("bert"), &out, &[]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "planish.json"]);

    fs::write(out.join("planish.json"), "{}").unwrap();
    planish_compile(&golden("bert"), &out, &[]).exits(1, &["was not written by planish", "--force", "-o"]);
    fs::remove_file(out.join("planish.json")).unwrap();
    fs::write(out.join("thesis"), "years").unwrap();
    planish_compile(&golden("bert"), &out, &[]).exits(1, &["was not written by planish", "--force"]);
    assert_eq!(fs::read_to_string(out.join("thesis")).unwrap(), "years");
    planish_compile(&golden("bert"), &out, &["--force"]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "planish.json"]);
    assert_eq!(names(folder.path()), [".out.old", "out"]);
}

#[test]
fn what_a_user_put_into_an_artifact_is_kept() {
    let folder = scratch();
    let model = Draft::of("bert").write(folder.path().join("model"));
    for name in ["tokenizer.json", "vocab.txt"] {
        fs::write(model.join(name), "{}").unwrap();
    }
    let out = folder.path().join("out");
    planish_compile(&model, &out, &["--weights", "link"]).succeeds();
    fs::write(out.join("notes.txt"), "years").unwrap();
    fs::create_dir(out.join("evaluation")).unwrap();
    let done = planish_compile(&model, &out, &[]);
    done.exits(1, &["out holds what was not written by planish: evaluation, notes.txt;", "--force", "-o"]);
    assert_eq!(fs::read_to_string(out.join("notes.txt")).unwrap(), "years");
    fs::remove_file(out.join("notes.txt")).unwrap();
    planish_compile(&model, &out, &[]).exits(1, &["planish: evaluation;"]);
    fs::remove_dir(out.join("evaluation")).unwrap();
    // Links and copies of the checkpoint's files are planish's own.
    planish_compile(&model, &out, &[]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "planish.json", "tokenizer.json", "vocab.txt"]);
    fs::write(out.join("notes.txt"), "").unwrap();
    planish_compile(&model, &out, &["--force"]).succeeds();
    assert!(!out.join("notes.txt").exists());
    assert_eq!(names(folder.path()), ["model", "out"]);
}

/// Each takes the place as a whole: at any time an artifact is there.
#[test]
fn parallel_runs_to_the_same_place() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &[]).succeeds();
    let start = |model: &str| {
        let arguments = [Path::new("compile"), &golden(model), Path::new("-o"), &out];
        command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut children = ["bert", "bert-mlm", "roberta-mlm", "bert", "bert-mlm", "roberta-mlm"].map(start).map(Some);
    while children.iter().any(Option::is_some) {
        assert!(out.join("model.onnx").exists(), "for a moment there was none");
        for slot in &mut children {
            if slot.as_mut().is_some_and(|child| child.try_wait().unwrap().is_some()) {
                Done::from(slot.take().unwrap().wait_with_output().unwrap()).succeeds();
            }
        }
    }
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "planish.json"]);
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    assert_eq!(manifest["files"][0]["bytes"], fs::metadata(out.join("model.onnx")).unwrap().len());
}

#[test]
fn what_is_no_folder_is_never_replaced() {
    let folder = scratch();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "text").unwrap();
    symlink(folder.path().join("elsewhere"), &link).unwrap();
    for place in [&file, &link] {
        let what =
            if place == &file { "exists and is not a folder" } else { "elsewhere, which is not there; make that" };
        planish_compile(&golden("bert"), place, &["--force"]).exits(1, &[what, "-o"]);
    }
    planish_compile(&golden("bert"), &file.join("below"), &["--force"]).exits(1, &["cannot make", "file"]);
    planish_compile(&golden("bert"), Path::new("/"), &["--force"]).exits(1, &["output folder", "-o"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(names(folder.path()), ["file", "link"]);
}

#[test]
fn the_source_is_not_replaced() {
    let folder = scratch();
    let model = Draft::of("bert").write(folder.path().join("model"));
    let parts = ["contains the model itself", "-o"];
    planish_compile(&model, &model, &["--force"]).exits(1, &parts);
    planish_compile(&model.join("model.safetensors"), &model, &["--force"]).exits(1, &parts);
    planish_compile(&model, folder.path(), &["--force"]).exits(1, &parts);
    // The weights may be elsewhere, as in the cache of Hugging Face: what is replaced is the folder.
    fs::rename(model.join("model.safetensors"), folder.path().join("blob")).unwrap();
    symlink("../blob", model.join("model.safetensors")).unwrap();
    planish_compile(&model, &model, &["--force"]).exits(1, &parts);
    assert_eq!(names(&model), ["config.json", "model.safetensors"]);
    // Below the source there is room.
    planish_compile(&model, &model.join("onnx"), &[]).succeeds();
    assert_eq!(names(&model), ["config.json", "model.safetensors", "onnx"]);
    assert_eq!(names(folder.path()), ["blob", "model"]);
}

/// A limit on the size of files behaves as a disk that fills up, and needs no rights.
#[test]
fn files_that_cannot_grow() {
    let folder = scratch();
    let out = folder.path().join("out");
    // 100 blocks of 512 bytes; the model takes 190 kB. Ignored, the signal leaves an error.
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$0\" compile \"$1\" -o \"$2\"";
    let binary = Path::new(env!("CARGO_BIN_EXE_planish"));
    let done = Command::new("sh").args(["-c", script]).args([binary, &golden("bert"), &out]).output().unwrap();
    Done::from(done).exits(1, &["model.onnx", "File too large"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_full_disk() {
    let script = r#""$0" compile "$1" -o "$2/out"; code=$?; ls -A "$2"; exit $code"#;
    if let Some(done) = mounted("size=100k", script) {
        let done = done.exits(1, &["cannot write", "model.onnx", "No space left on device"]);
        assert_eq!(done.stdout, "", "something was left behind");
    }
}

#[test]
fn a_disk_with_room_for_the_old_artifact_only() {
    let script = r#"
        "$0" compile "$1" -o "$2/out" >/dev/null && cp "$2/out/planish.json" "$2/before" || exit
        "$0" compile "$1" -o "$2/out"
        code=$?
        cmp "$2/before" "$2/out/planish.json" && ls -A "$2"
        exit $code"#;
    if let Some(done) = mounted("size=300k", script) {
        assert_eq!(done.exits(1, &["No space left on device"]).stdout, "before\nout\n");
    }
}

#[test]
fn a_read_only_disk() {
    // No user may make folders there.
    for place in ["/proc/planish-test", "/sys/planish-test"] {
        let done = planish_compile(&golden("bert"), Path::new(place), &[]);
        done.exits(1, &["cannot make a folder in", "choose a writable place with -o"]);
    }
    if let Some(done) = mounted("ro", r#""$0" compile "$1" -o "$2/out""#) {
        done.exits(1, &["cannot make a folder in", "Read-only file system", "-o"]);
    }
}

/// A checkpoint whose word embeddings are a hole of 460 MB.
fn large(folder: PathBuf) -> PathBuf {
    let (vocabulary, hidden) = (2_400_000_u64, 48);
    let mut draft = Draft::of("bert");
    let name = "embeddings.word_embeddings.weight";
    draft.tensors.remove(name);
    draft.config["vocab_size"] = vocabulary.into();
    let model = draft.write(folder);

    // The tensor is entered last, so that the bytes of the others stay where they are.
    let path = model.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let end = 8 + usize::try_from(u64::from_le_bytes(bytes[..8].try_into().unwrap())).unwrap();
    let mut header: Value = serde_json::from_slice(&bytes[8..end]).unwrap();
    let start = u64::try_from(bytes.len() - end).unwrap();
    let length = vocabulary * hidden * 4;
    header[name] = json!({"dtype": "F32", "shape": [vocabulary, hidden], "data_offsets": [start, start + length]});
    let header = header.to_string().into_bytes();
    let prefix = [&u64::try_from(header.len()).unwrap().to_le_bytes()[..], &header, &bytes[end..]].concat();
    let file = File::create(&path).unwrap();
    file.write_all_at(&prefix, 0).unwrap();
    file.set_len(u64::try_from(prefix.len()).unwrap() + length).unwrap();
    model
}

/// A run that compiles a large model to `out` and has begun to write.
fn writing(model: &Path, out: &Path) -> Child {
    let place = out.parent().unwrap();
    let arguments = [Path::new("compile"), model, Path::new("-o"), out];
    let child = command(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = Instant::now();
    while !names(place).iter().any(|draft| place.join(draft).join("model.onnx").exists()) {
        assert!(started.elapsed() < Duration::from_secs(60), "no file appeared");
        std::thread::sleep(Duration::from_micros(200));
    }
    child
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let folder = scratch();
    let model = large(folder.path().join("model"));
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = writing(&model, &place.join("out"));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "it was done before {signal} reached it");
        assert_eq!(names(&place), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn a_kill_in_mid_write_leaves_nothing_that_looks_finished() {
    let folder = scratch();
    let model = large(folder.path().join("model"));
    // A folder with a dot in its name, to see it kept whole.
    let place = folder.path().join("place");
    let out = place.join("bert-v1.5");
    fs::create_dir(&place).unwrap();
    let mut child = writing(&model, &out);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9), "it was done before it was killed");

    let left = names(&place);
    assert!(left.len() == 1 && left[0].starts_with(".bert-v1.5.planish-"), "{left:?}");
    assert!(!out.exists());
    planish_compile(&golden("bert"), &out, &["--verify"]).succeeds();
    assert_eq!(names(&place), ["bert-v1.5"], "the leftover is removed");
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "planish.json"]);
}

/// Drafts of processes that are still at work are not leftovers, nor is what looks like one.
#[test]
fn only_leftovers_are_removed() {
    let folder = scratch();
    let make = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("model.onnx"), "").unwrap();
        path
    };
    let kept = [".other.planish-0123456789abcdef", ".out.planish-1", ".out.planish-fedcba9876543210", ".out.planish-x"];
    let paths = kept.map(make);
    let _at_work = lock(&paths[2]);
    make(".out.planish-0123456789abcdef");
    make(".out.planish-00000000000000ff.old");
    let out = make("out");
    planish_compile(&golden("bert"), &out, &["--force"]).succeeds();
    assert_eq!(names(folder.path()), [&kept[..], &["out"]].concat());
}

fn lock(folder: &Path) -> File {
    let file = File::open(folder).unwrap();
    file.try_lock().unwrap();
    file
}

/// Without an exchange of folders, what is replaced is moved aside first; a kill may come then.
#[test]
fn what_a_killed_run_moved_aside_is_moved_back() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &[]).succeeds();
    let (draft, aside) = (".out.planish-0123456789abcdef", ".out.planish-0123456789abcdef.old");
    fs::create_dir(folder.path().join(draft)).unwrap();
    fs::write(out.join("notes.txt"), "years").unwrap();
    fs::rename(&out, folder.path().join(aside)).unwrap();
    planish_compile(&golden("bert"), &out, &[]).exits(1, &["notes.txt"]);
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "notes.txt", "planish.json"]);
}
