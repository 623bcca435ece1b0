//! Signals at any moment: the output is what it was or what it is to be, the exit code says which, and nothing
//! else is left.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use safetensors::tensor::Dtype;

use crate::support::{Stored, artifact, contents, golden, names, planish_compile, scratch, text, write_tensors};

/// The signals that end a command, by name and number.
const SIGNALS: [(&str, i32); 3] = [("INT", 2), ("TERM", 15), ("HUP", 1)];

/// The binary with arguments in a folder. Who runs the tests may have them ignore signals, which the binary would too.
fn starting<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, folder: &Path) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_planish")]).args(arguments);
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn send(child: &Child, signal: &str) {
    let kill = format!("kill -{signal} {}", child.id());
    // It may be gone already.
    Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status().unwrap();
}

/// The exit code, and whether the signal came before the command could do anything about it.
fn ended(status: ExitStatus, number: i32) -> Option<i32> {
    assert!(status.code().is_some() || status.signal() == Some(number), "{status}");
    status.code()
}

/// Where an artifact goes.
struct Place {
    /// Where the command runs.
    folder: PathBuf,
    /// The output as the command names it.
    output: &'static str,
    /// The output.
    target: PathBuf,
}

/// When a signal is sent.
enum Moment {
    After(Duration),
    /// So long after the manifest of the new artifact is written: what follows is publishing.
    Publishing(Duration),
}

/// Interrupts a compilation to a place and looks at what is left. Returns whether the new artifact is in place.
fn interrupted(place: &Place, arguments: &[&str], moment: Moment, (name, number): (&str, i32), new: &Path) -> bool {
    let before = place.target.is_dir().then(|| contents(&place.target));
    let mut child = starting([arguments, &["-o", place.output]].concat(), &place.folder).spawn().unwrap();
    match moment {
        Moment::After(delay) => thread::sleep(delay),
        Moment::Publishing(delay) => {
            let start = Instant::now();
            let drafts = if place.output == "." { &place.target } else { &place.folder };
            let written = || {
                let names = fs::read_dir(drafts).into_iter().flatten().flatten().map(|entry| entry.path());
                names
                    .filter(|path| path.to_string_lossy().contains(".planish-"))
                    .any(|draft| draft.join("planish.json").exists())
            };
            while !written() && child.try_wait().unwrap().is_none() {
                assert!(start.elapsed() < Duration::from_secs(60));
            }
            thread::sleep(delay);
        }
    }
    send(&child, name);
    let code = ended(child.wait().unwrap(), number);
    let after = place.target.is_dir().then(|| contents(&place.target));
    let expected = match code {
        Some(0) => Some(contents(new)),
        code => {
            assert!(code.is_none_or(|code| code == 128 + number), "{code:?}");
            before
        }
    };
    assert_eq!(after.as_ref().map(|a| a.keys().collect::<Vec<_>>()), expected.as_ref().map(|e| e.keys().collect()));
    assert!(after == expected, "a file of {} is another", place.target.display());
    if place.output == "out" {
        let left = if after.is_some() { vec!["out"] } else { Vec::new() };
        assert_eq!(names(&place.folder), left);
    }
    code == Some(0)
}

/// A wide spread of moments, of a place with and without an artifact, of one that is exchanged and one that has to
/// stay, for each signal. `make signal-sweep` does more.
#[test]
fn a_signal_at_any_moment_leaves_the_old_or_the_new() {
    let folder = scratch();
    let reference = |name: &str, opset: &str| {
        // As deep as the places are: planish.json has the path from there to the model.
        let path = folder.path().join(name).join("out");
        planish_compile(&golden("bert"), &path, &["--opset", opset]).succeeds();
        path
    };
    let start = Instant::now();
    let (old, new) = (reference("old", "20"), reference("new", "21"));
    let took = start.elapsed() / 2;
    let model = golden("bert");
    let arguments = ["compile", text(&model), "--opset", "21"];
    let (mut runs, mut published) = (0, 0);
    for in_place in [true, false] {
        for output in ["out", "."] {
            for signal in SIGNALS {
                for number in 0..8 {
                    let own = folder.path().join(format!("run-{in_place}-{}-{}-{number}", output.len(), signal.0));
                    let target = if output == "." { own.join("here") } else { own.join("out") };
                    let place = Place {
                        folder: if output == "." { target.clone() } else { own.clone() },
                        output,
                        target: target.clone(),
                    };
                    fs::create_dir_all(&place.folder).unwrap();
                    if in_place {
                        fs::create_dir_all(&target).unwrap();
                        for name in names(&old) {
                            fs::copy(old.join(&name), target.join(&name)).unwrap();
                        }
                    }
                    let moment = match number {
                        0..4 => Moment::After(took * number / 3),
                        _ => Moment::Publishing(Duration::from_micros(u64::from(number - 4) * 150)),
                    };
                    published += u32::from(interrupted(&place, &arguments, moment, signal, &new));
                    runs += 1;
                    fs::remove_dir_all(&own).unwrap();
                }
            }
        }
    }
    // Signals came before and after: at once, and when the manifest was written.
    assert!(published > 0 && published < runs, "{published} of {runs} runs had published before the signal");
}

/// Writes samples for BERT, so many that a calibration is at work for a while.
fn write_samples(path: &Path) {
    let (rows, tokens) = (50_000, 8);
    let of = |number: i64| number.to_le_bytes().repeat(rows * tokens);
    let stored = |bytes| Stored { dtype: Dtype::I64, shape: vec![rows, tokens], bytes };
    let inputs = [("input_ids", of(0)), ("attention_mask", of(1)), ("token_type_ids", of(0))];
    write_tensors(path, &inputs.map(|(name, bytes)| (name.to_owned(), stored(bytes))).into());
}

/// Commands that write nothing, or one file, end with the same codes. Each of these takes a long time.
#[test]
fn long_commands_end_by_a_signal_with_its_code() {
    let (folder, out) = artifact("gpt2");
    let (model, bert) = (golden("gpt2"), golden("bert"));
    let [data, table] = ["data.safetensors", "table.json"].map(|name| folder.path().join(name));
    write_samples(&data);
    let compile = ["compile", text(&bert), "-o", text(&table), "--int8", "--calibrate", text(&data)];
    let compile = [&compile[..], &["--recipe", "weight-method=gptq"]].concat();
    let calibrate = ["calibrate", text(&bert), "--data", text(&data), "-o", text(&table), "--batch", "1"];
    let calibrate = [&calibrate[..], &["--samples", "50000"]].concat();
    let commands: [&[&str]; 3] = [
        &["bench", text(&out), "--reference", text(&model), "--set", "interval=0,time=600", "--seq", "4"],
        &compile,
        &calibrate,
    ];
    let before = names(folder.path());
    for (at, arguments) in commands.into_iter().enumerate() {
        for (name, number) in SIGNALS {
            let mut child = starting(arguments, folder.path()).spawn().unwrap();
            // Until it handles signals, which is the first thing that it does.
            let start = Instant::now();
            while !handles(&child, number) {
                assert!(start.elapsed() < Duration::from_secs(60), "{arguments:?}");
                thread::sleep(Duration::from_millis(1));
            }
            // The threads of the runtime are at work.
            thread::sleep(Duration::from_millis(if at == 0 { 1000 } else { 0 }));
            send(&child, name);
            assert_eq!(child.wait().unwrap().code(), Some(128 + number), "{arguments:?} {name}");
            assert_eq!(names(folder.path()), before, "{arguments:?}");
        }
    }
}

/// Calibration has graphs in a temporary folder as long as it runs.
#[test]
fn an_interrupted_calibration_leaves_no_temporary_files() {
    let folder = scratch();
    let [temporary, data, table] = ["tmp", "data.safetensors", "table.json"].map(|name| folder.path().join(name));
    fs::create_dir(&temporary).unwrap();
    // A file of another with a name that could be the folder's.
    fs::write(temporary.join("planish-calibration"), "of another").unwrap();
    write_samples(&data);
    let model = golden("bert");
    let arguments = ["calibrate", text(&model), "--data", text(&data), "-o", text(&table), "--batch", "1"];
    let arguments = [&arguments[..], &["--samples", "50000"]].concat();
    let mut child = starting(arguments, folder.path()).env("TMPDIR", &temporary).spawn().unwrap();
    let start = Instant::now();
    while !names(&temporary).iter().any(|draft| temporary.join(draft).join("model.onnx").exists()) {
        assert!(start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
    }
    thread::sleep(Duration::from_millis(50));
    send(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(names(&temporary), ["planish-calibration"]);
    assert_eq!(names(folder.path()), ["data.safetensors", "tmp"]);
}

/// Whether a process has a handler of a signal, as Linux lists it.
fn handles(child: &Child, number: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
    let command = fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap_or_default();
    command.trim() == "planish" && u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1) & 1 == 1
}

/// As `nohup` and shells have it of commands in the background.
#[test]
fn a_signal_that_is_to_be_ignored_is() {
    let (folder, out) = artifact("bert");
    let script = "trap '' HUP INT; exec \"$0\" bench \"$1\" --reference \"$2\" --set interval=0,time=600 --seq 4";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(env!("CARGO_BIN_EXE_planish")).arg(&out).arg(golden("bert"));
    let mut child = command.current_dir(folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !handles(&child, 15) {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(1));
    }
    send(&child, "HUP");
    send(&child, "INT");
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "it ended by a signal that is ignored");
    send(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn the_first_interrupt_of_a_benchmark_shows_what_is_finished() {
    let (folder, out) = artifact("bert");
    let figures = folder.path().join("figures.json");
    let model = golden("bert");
    let bench = ["bench", text(&out), "--reference", text(&model), "--seq", "5,32", "--json", text(&figures)];
    let options = ["--set", "interval=0,time=600,iterations=1", "--runtime", "ort"];
    let mut command = starting([&bench[..], &options].concat(), folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while !handles(&child, 2) {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(1500));
    send(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let (table, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert_eq!(table.matches("not finished").count(), 2, "{table}");
    assert!(errors.contains("ended by SIGINT: 2 of 2 cells are not measured"), "{errors}");
    let document: serde_json::Value = serde_json::from_slice(&fs::read(&figures).unwrap()).unwrap();
    assert_eq!(document["cells"][0]["status"], "unfinished", "{document}");
}
