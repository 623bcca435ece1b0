//! What a command writes must be neither what it reads nor another thing that it writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use planish_artifact::MANIFEST;
use planish_artifact::files::resolved;
use planish_artifact::manifest::Manifest;
use planish_models::is_companion;

use super::Usage;

/// Endings of the files of a model.
const ENDINGS: [&str; 9] = ["safetensors", "gguf", "onnx", "onnx_data", "data", "bin", "pt", "pth", "engine"];

/// Files of a model that have other endings, beside those that are copied into artifacts.
const NAMES: [&str; 3] = ["config.json", "model.safetensors.index.json", MANIFEST];

/// What tells one file from others: its place in the filesystem, or the path where there is none yet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    File(u64, u64),
    Path(PathBuf),
}

/// That of a path; `None` of what is no file, such as a terminal, and of a path that leads nowhere.
fn identity(path: &Path) -> Option<Identity> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Some(Identity::File(metadata.dev(), metadata.ino())),
        Ok(_) => None,
        Err(_) => resolved(path).map(Identity::Path),
    }
}

/// Refuses outputs that would take the place of an input or of one another, before there is any work. `outputs` are files
/// with the options that name them, `models` are checkpoints, graphs and artifacts, which read what belongs to them, and `data`
/// are single files.
///
/// # Errors
/// The output and what it would take the place of.
pub(super) fn check<'a>(
    outputs: impl IntoIterator<Item = (&'a str, Option<&'a Path>)>,
    models: impl IntoIterator<Item = &'a Path>,
    data: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Usage> {
    let outputs = outputs.into_iter().filter_map(|(option, path)| Some((option, path?, identity(path?)?)));
    let outputs: Vec<(&str, &Path, Identity)> = outputs.collect();
    if outputs.is_empty() {
        return Ok(());
    }
    for (at, (option, path, own)) in outputs.iter().enumerate() {
        if let Some((other, _, _)) = outputs.iter().skip(at + 1).find(|(_, _, other)| other == own) {
            let path = path.display();
            return Err(Usage(format!("{option} and {other} would both write {path}; give each a file of its own")));
        }
    }
    let data = data.into_iter().map(|file| vec![file.to_owned()]);
    for files in models.into_iter().map(files_of).chain(data) {
        for file in files {
            let Some(read) = identity(&file) else { continue };
            if let Some((option, path, _)) = outputs.iter().find(|(_, _, own)| *own == read) {
                let (path, file) = (path.display(), file.display());
                return Err(Usage(format!(
                    "{option} {path} would overwrite {file}, which this command reads; choose another path"
                )));
            }
        }
    }
    Ok(())
}

/// The files that an input stands for: those of a model's folder, and beside a graph or weights those that belong to it.
fn files_of(input: &Path) -> Vec<PathBuf> {
    let ending = input.extension().unwrap_or_default().to_string_lossy();
    let folder = match input.is_dir() {
        true => Some(input),
        // Beside it are weights, tokenizer and configuration.
        false if ENDINGS.contains(&ending.as_ref()) => input.parent(),
        false => None,
    };
    let mut files = vec![input.to_owned()];
    let Some(folder) = folder.map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder }) else {
        return files;
    };
    if let (true, Ok(manifest)) = (input.is_dir(), Manifest::read(folder)) {
        files.extend(manifest.file_names().map(|name| folder.join(name)));
        files.push(folder.join(MANIFEST));
        return files;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.extend(entries.filter(|path| is_of_model(path)));
    files
}

fn is_of_model(path: &Path) -> bool {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    ENDINGS.contains(&ending.as_ref()) || NAMES.contains(&name.as_ref()) || is_companion(&name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(outputs: &[(&str, &Path)], inputs: &[&Path]) -> Option<String> {
        let outputs = outputs.iter().map(|(option, path)| (*option, Some(*path)));
        check(outputs, inputs.iter().copied(), []).err().map(|error| error.to_string())
    }

    #[test]
    fn inputs_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("model")).unwrap();
        for name in ["model/model.safetensors", "model/config.json", "model/notes.json", "data.jsonl"] {
            fs::write(place(name), "").unwrap();
        }
        symlink("data.jsonl", place("link")).unwrap();
        fs::hard_link(place("data.jsonl"), place("hard")).unwrap();
        let (model, data) = (place("model"), place("data.jsonl"));
        for output in ["model/model.safetensors", "model/../model/config.json", "link", "hard", "data.jsonl"] {
            let error = refused(&[("--json", &place(output))], &[&model, &data]).unwrap();
            assert!(error.contains("--json") && error.contains("which this command reads"), "{error}");
        }
        for output in ["model/notes.json", "model/new.json", "new"] {
            assert_eq!(refused(&[("--json", &place(output))], &[&model, &data]), None, "{output}");
        }
        let beside = refused(&[("--svg", &place("model/config.json"))], &[&place("model/model.safetensors")]);
        assert!(beside.unwrap().contains("model/config.json"));
    }

    #[test]
    fn outputs_are_not_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::write(place("old"), "").unwrap();
        symlink("old", place("link")).unwrap();
        for [a, b] in [["old", "link"], ["new", "./new"], ["new", "new"]] {
            let error = refused(&[("--html", &place(a)), ("--csv", &place(b))], &[]).unwrap();
            assert!(error.contains("--html and --csv would both write"), "{error}");
        }
        assert_eq!(refused(&[("--html", &place("a")), ("--csv", &place("b"))], &[]), None);
        let null = Path::new("/dev/null");
        assert_eq!(refused(&[("--html", null), ("--csv", null)], &[null]), None);
    }
}
