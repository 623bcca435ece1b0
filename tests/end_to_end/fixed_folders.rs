//! Output folders that have to stay the folders that they are: mount points, the current folder, what links name.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Done, command, golden, mounted, names, planish, planish_compile, scratch, skipped};

/// What `ls -A` prints of an artifact of the golden BERT.
const ARTIFACT: &str = "README.md\nconfig.json\nmodel.onnx\nplanish.json\n";

/// Compiles to a folder that is named from another.
fn compiled_from(current: &Path, output: &str, more: &[&str]) -> Done {
    let arguments = [Path::new("compile"), &golden("bert"), Path::new("-o"), Path::new(output)];
    command(arguments.into_iter().chain(more.iter().map(Path::new))).current_dir(current).output().unwrap().into()
}

fn opset(folder: &Path) -> Value {
    let manifest: Value = serde_json::from_slice(&fs::read(folder.join("planish.json")).unwrap()).unwrap();
    manifest["opset"].clone()
}

#[test]
fn the_current_folder_is_published_into() {
    let folder = scratch();
    let here = folder.path().join("here");
    fs::create_dir(&here).unwrap();
    let inode = fs::metadata(&here).unwrap().ino();
    for (place, number) in [(".", 20), ("../here", 21), ("./", 22)] {
        compiled_from(&here, place, &["--opset", &number.to_string()]).succeeds();
        assert_eq!(opset(&here), number);
        assert_eq!(names(&here), ["README.md", "config.json", "model.onnx", "planish.json"]);
    }
    // Files of an older artifact that the new one does not have are gone.
    fs::write(here.join("tokenizer.json"), "{}").unwrap();
    let manifest = fs::read_to_string(here.join("planish.json")).unwrap();
    let longer = manifest.replace("\"companions\": [", "\"companions\": [\n    \"tokenizer.json\",");
    assert_ne!(longer, manifest);
    fs::write(here.join("planish.json"), longer).unwrap();
    compiled_from(&here, ".", &[]).succeeds();
    assert_eq!(names(&here), ["README.md", "config.json", "model.onnx", "planish.json"]);

    fs::write(here.join("thesis"), "years").unwrap();
    let parts = ["here holds what was not written by planish: thesis;", "--force does not empty the current folder"];
    for more in [&[][..], &["--force"]] {
        compiled_from(&here, ".", more).exits(1, &parts);
    }
    compiled_from(&here, "..", &["--force"]).exits(1, &["contains the current folder and is not replaced"]);
    assert_eq!(fs::read_to_string(here.join("thesis")).unwrap(), "years");
    fs::remove_file(here.join("thesis")).unwrap();
    assert_eq!(names(folder.path()), ["here"]);
    assert_eq!(fs::metadata(&here).unwrap().ino(), inode, "it is another folder");

    // What a killed run has left in the folder is made good from outside too.
    fs::create_dir(here.join(".planish-0123456789abcdef")).unwrap();
    planish_compile(&golden("bert"), &here, &[]).succeeds();
    assert_eq!(names(&here), ["README.md", "config.json", "model.onnx", "planish.json"]);
}

/// As `flock . planish compile` has it.
#[test]
fn a_folder_that_another_process_has_locked_is_an_error() {
    let folder = scratch();
    let here = folder.path().join("here");
    fs::create_dir(&here).unwrap();
    let lock = fs::File::open(&here).unwrap();
    lock.lock().unwrap();
    let start = Instant::now();
    let parts = ["another process holds ", "here: it has locked the folder", "-o"];
    compiled_from(&here, ".", &[]).exits(1, &parts);
    assert!(start.elapsed() < Duration::from_secs(60), "it waited for {:?}", start.elapsed());
    assert_eq!(names(&here), [""; 0]);
    // A process that publishes there holds it for a moment.
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        drop(lock);
    });
    compiled_from(&here, ".", &[]).succeeds();
    other.join().unwrap();
    assert_eq!(names(&here), ["README.md", "config.json", "model.onnx", "planish.json"]);
}

#[test]
fn a_link_to_a_folder_stays_and_the_folder_is_replaced() {
    let folder = scratch();
    let (real, link) = (folder.path().join("real"), folder.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink("real", &link).unwrap();
    for number in ["20", "21"] {
        let done = planish_compile(&golden("bert"), &link, &["--opset", number]).succeeds();
        assert!(done.stdout.contains("link: bert"), "it goes by the name that it was given: {}", done.stdout);
        assert_eq!(opset(&real), number.parse::<i64>().unwrap());
        assert!(link.is_symlink());
        assert_eq!(names(folder.path()), ["link", "real"]);
    }
    // The model is found again from both names, from a folder that has neither.
    let (deep, far) = (folder.path().join("far/away/deep"), folder.path().join("far/link"));
    fs::create_dir_all(&deep).unwrap();
    symlink("away/deep", &far).unwrap();
    planish_compile(&golden("bert"), &far, &[]).succeeds();
    for name in [&deep, &far] {
        planish([Path::new("verify"), name]).succeeds();
    }
    // The current folder by another name.
    compiled_from(&real, "../link", &["--opset", "22"]).succeeds();
    assert_eq!(opset(&real), 22);
}

#[test]
fn a_mount_point_is_published_into() {
    let script = r#"
        "$0" compile "$1" -o "$2" >/dev/null && ls -A "$2" &&
        mkdir "$2/lost+found" &&
        "$0" compile "$1" -o "$2" --opset 21 >/dev/null && ls -A "$2" && grep -c '"opset": 21' "$2/planish.json" &&
        echo years >"$2/thesis" || exit 9
        "$0" compile "$1" -o "$2" && exit 9
        "$0" compile "$1" -o "$2" --force --opset 22 >/dev/null || exit 9
        ls -A "$2"; grep -c '"opset": 22' "$2/planish.json""#;
    if let Some(done) = mounted("size=10M", script) {
        let done = done.exits(0, &["holds what was not written by planish: thesis;"]);
        let with = "README.md\nconfig.json\nlost+found\nmodel.onnx\nplanish.json\n1\n";
        assert_eq!(done.stdout, format!("{ARTIFACT}{with}{with}"));
    }
}

/// Of the same filesystem as what is around it, but no folder that can be renamed either.
#[test]
fn a_bound_folder_is_published_into() {
    let script = r#"
        mkdir "$2/real" "$2/bound" && mount --bind "$2/real" "$2/bound" || exit 9
        for opset in 20 21; do
            "$0" compile "$1" -o "$2/bound" --opset $opset >/dev/null || exit 9
            ls -A "$2/real"; grep -c "\"opset\": $opset" "$2/real/planish.json"
        done
        ls -A "$2""#;
    if let Some(done) = mounted("size=10M", script) {
        assert_eq!(done.exits(0, &[]).stdout, format!("{ARTIFACT}1\n{ARTIFACT}1\nbound\nreal\n"));
    }
}

/// A folder takes what is mounted in it along when it is renamed, and then cannot be removed.
#[test]
fn a_folder_that_something_is_mounted_in_is_not_replaced() {
    let script = r#"
        mkdir -p "$2/real" "$2/nest/deep/er" && echo years >"$2/real/thesis" || exit 9
        mount --bind "$2/real" "$2/nest/deep/er" || exit 9
        "$0" compile "$1" -o "$2/nest" --force && exit 9
        "$0" compile "$1" -o "$2" --force && exit 9
        ls -A "$2" "$2/nest/deep/er"
        umount "$2/nest/deep/er" && "$0" compile "$1" -o "$2/nest" --force >/dev/null && ls -A "$2/nest""#;
    if let Some(done) = mounted("size=10M", script) {
        let done = done.exits(0, &["/nest holds the mount point ", "/nest/deep/er, which cannot be moved aside", "-o"]);
        assert!(done.stdout.contains("thesis") && done.stdout.ends_with(ARTIFACT), "{}", done.stdout);
        assert_eq!(done.stdout.matches("planish").count(), 1, "a folder is left: {}", done.stdout);
    }
}

/// The folders of an image cannot be renamed in a container that is made from it.
#[test]
fn a_folder_of_a_container_image_is_published_into() {
    let script = r#"
        mkdir "$2/image" "$2/own" "$2/work" "$2/container" || exit 9
        "$0" compile "$1" -o "$2/image/out" >/dev/null || exit 9
        mount -t overlay -o "lowerdir=$2/image,upperdir=$2/own,workdir=$2/work" none \
            "$2/container" || { echo none; exit; }
        "$0" compile "$1" -o "$2/container/out" --opset 21 >/dev/null || exit 9
        ls -A "$2/container" "$2/container/out" | tail -n +2; grep -c '"opset": 21' "$2/container/out/planish.json""#;
    if let Some(done) = mounted("size=10M", script) {
        let done = done.exits(0, &[]);
        if done.stdout == "none\n" {
            skipped(&format!("an overlay cannot be mounted here: {}", done.stderr));
        } else {
            let mut lines: Vec<&str> =
                done.stdout.lines().filter(|line| !line.is_empty() && !line.ends_with(':')).collect();
            // Locales order letters of both cases in their own ways.
            lines.sort_unstable();
            assert_eq!(lines, ["1", "README.md", "config.json", "model.onnx", "out", "planish.json"]);
        }
    }
}

#[test]
fn a_mount_point_that_is_read_only_or_too_small() {
    if let Some(done) = mounted("ro", r#""$0" compile "$1" -o "$2""#) {
        done.exits(1, &["cannot make a folder in", "Read-only file system", "-o"]);
    }
    let script = r#"
        "$0" compile "$1" -o "$2" >/dev/null && cp "$2/planish.json" /tmp/$$ || exit 9
        "$0" compile "$1" -o "$2"
        code=$?
        cmp /tmp/$$ "$2/planish.json" && ls -A "$2"; rm /tmp/$$
        exit $code"#;
    if let Some(done) = mounted("size=300k", script) {
        assert_eq!(done.exits(1, &["No space left on device"]).stdout, ARTIFACT);
    }
}

#[test]
fn parallel_runs_to_a_mount_point() {
    let script = r#"
        for run in 1 2 3 4 5 6; do
            "$0" compile "$1" -o "$2" --opset $((20 + run % 2)) >/dev/null & pids="$pids $!"
        done
        for pid in $pids; do wait $pid || exit 9; done
        ls -A "$2""#;
    if let Some(done) = mounted("size=10M", script) {
        assert_eq!(done.exits(0, &[]).stdout, ARTIFACT);
    }
}
