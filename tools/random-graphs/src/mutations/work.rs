//! The process in which cases run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fastrand::Rng;
use planish_onnx::proto::ModelProto;
use planish_random_graphs::Log;
use prost::Message;

use crate::Arguments;
use crate::mutate::mutate;

/// Files above this size take too long for their use.
const LARGEST: u64 = 300_000;

pub(crate) fn run(arguments: &Arguments, log: &Path) -> Result<()> {
    let models = models(&arguments.folders)?;
    let folder = tempfile::tempdir()?;
    let mut log = Log::open(log)?;
    for case in arguments.cases.numbers() {
        let (path, model) = changed(&models, case)?;
        let source = folder.path().join("model.onnx");
        fs::write(&source, model)?;
        log.begin(case, &path.display().to_string())?;
        let output = folder.path().join("artifact");
        let words = ["planish", "compile", "--verify", "--json", "--target", &arguments.target];
        let words = words.iter().map(Into::into).chain([source.into_os_string(), "-o".into(), output.into_os_string()]);
        match log.caught(|| planish::cli::run(words.collect::<Vec<_>>())) {
            Ok(code) => log.end(case, &format!("exit-{code}"), "")?,
            Err(message) => log.end(case, "panic", &message)?,
        }
    }
    Ok(())
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
