//! The process in which cases run: one after another, each with a line in the log when it begins and when it ends.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use fastrand::Rng;
use planish_onnx::proto::ModelProto;
use prost::Message;

use crate::Arguments;
use crate::mutate::mutate;

/// Files above this size take too long for their use.
const LARGEST: u64 = 300_000;

pub(crate) fn run(arguments: &Arguments, log: &Path) -> Result<()> {
    let models = models(&arguments.folders)?;
    let mut log = OpenOptions::new().create(true).append(true).open(log)?;
    let folder = tempfile::tempdir()?;
    let message = Arc::new(Mutex::new(String::new()));
    let panicked = Arc::clone(&message);
    panic::set_hook(Box::new(move |info| {
        let text = info.to_string().replace('\n', " ");
        *panicked.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }));
    for case in (arguments.first..arguments.first + arguments.cases).step_by(step(arguments)) {
        let (path, model) = changed(&models, case)?;
        let source = folder.path().join("model.onnx");
        fs::write(&source, model)?;
        writeln!(log, "begin {case} {}", path.display())?;
        forget_peak();
        message.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let output = folder.path().join("artifact");
        let words = ["planish", "compile", "--verify", "--json", "--target", &arguments.target];
        let words = words.iter().map(Into::into).chain([source.into_os_string(), "-o".into(), output.into_os_string()]);
        let ended = panic::catch_unwind(AssertUnwindSafe(|| planish::cli::run(words.collect::<Vec<_>>())));
        let panicked = message.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let code = ended.map_or_else(|_| "panic".to_owned(), |code| code.to_string());
        writeln!(log, "end {case} {code} {} {panicked}", peak())?;
    }
    Ok(())
}

/// Cases between two of one process.
fn step(arguments: &Arguments) -> usize {
    usize::try_from(arguments.jobs).unwrap_or(1)
}

/// A case: the file that it comes from, and the changed model.
pub(crate) fn changed(models: &[(PathBuf, Vec<u8>)], case: u64) -> Result<(PathBuf, Vec<u8>)> {
    let mut rng = Rng::with_seed(case);
    let (path, bytes) = &models[rng.usize(..models.len())];
    let mut model = ModelProto::decode(bytes.as_slice()).with_context(|| path.display().to_string())?;
    mutate(&mut model, &mut rng);
    Ok((path.clone(), model.encode_to_vec()))
}

/// The models below folders, by path.
pub(crate) fn models(folders: &[PathBuf]) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut open = folders.to_vec();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "onnx") && path.metadata()?.len() <= LARGEST {
                found.push((path.clone(), fs::read(&path)?));
            }
        }
    }
    anyhow::ensure!(!found.is_empty(), "no .onnx file of at most {LARGEST} bytes is there");
    found.sort();
    Ok(found)
}

/// Has the system count this process's peak of resident memory anew.
fn forget_peak() {
    // Where that is refused, the peak is that of all cases so far.
    let _ = File::options().write(true).open("/proc/self/clear_refs").and_then(|mut file| file.write_all(b"5"));
}

/// The peak of resident memory in kB, or 0 where the system does not say.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}
