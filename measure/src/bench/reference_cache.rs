//! Outputs of the reference interpreter, kept from one benchmark to the next in the user's folder of caches.
//!
//! A file has the outputs of a part of a model for some inputs. Its name is the digest of the model, the inputs, and the binary
//! of planish, so that nothing old is taken. A tensor beside the outputs has their digest: what is not as it was kept is
//! computed again.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use planish_artifact::files::write_cached;
use planish_artifact::manifest::SourceManifest;
use planish_data::inputs::tensor_file;
use planish_eval::Tensor;
use planish_runtimes::{RuntimeError, cache_folder};

/// The most bytes of all files; the oldest ones are removed for new ones.
const MOST_BYTES: u64 = 512 << 20;

/// The outputs of one model.
#[derive(Clone, Debug)]
pub(crate) struct ReferenceCache {
    folder: PathBuf,
    /// What tells the model and the binary from others.
    identity: String,
}

type Tensors = Vec<(String, Tensor)>;

impl ReferenceCache {
    /// The cache of a model; `None` where the user has no folder of caches, or not all files of the model have a digest.
    pub(crate) fn of(source: &SourceManifest, task: &str) -> Option<Self> {
        let digests: Vec<String> = source.files.iter().map(|file| file.blake3.clone()).collect::<Option<_>>()?;
        let import = serde_json::to_string(&source.import).ok()?;
        let identity = [digests.join(" "), import, task.to_owned(), binary()?].join("\n");
        Some(Self { folder: cache_folder::of_user()?.join("reference"), identity })
    }

    /// The outputs of a part for some inputs, from a file or by `compute`.
    ///
    /// # Errors
    /// Those of `compute`.
    pub(crate) fn outputs(
        &self,
        part: &str,
        inputs: &[(String, Tensor)],
        compute: &mut dyn FnMut() -> Result<Tensors, RuntimeError>,
    ) -> Result<Tensors, RuntimeError> {
        let path = self.path(part, inputs);
        if let Some(known) = tensor_file::read(&path).ok().and_then(checked) {
            return Ok(known);
        }
        let outputs = compute()?;
        self.keep(&path, &outputs);
        Ok(outputs)
    }

    fn path(&self, part: &str, inputs: &[(String, Tensor)]) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.identity.as_bytes()).update(part.as_bytes());
        add(&mut hasher, inputs);
        self.folder.join(format!("{}.safetensors", hasher.finalize().to_hex()))
    }

    /// Writes outputs, if that is possible: a benchmark does without.
    fn keep(&self, path: &Path, outputs: &[(String, Tensor)]) {
        let bytes: u64 = outputs.iter().map(|(_, tensor)| tensor.bytes()).sum();
        if bytes > MOST_BYTES / 4 || fs::create_dir_all(&self.folder).is_err() {
            return;
        }
        make_room(&self.folder, bytes);
        let digest = Tensor::new(vec![blake3::OUT_LEN], digest(outputs).as_bytes().to_vec());
        let Some(digest) = digest.filter(|_| outputs.iter().all(|(name, _)| name != DIGEST)) else { return };
        let digested: Tensors = outputs.iter().cloned().chain([(DIGEST.to_owned(), digest)]).collect();
        if let Ok(file) = tensor_file::serialized(&digested) {
            let _ = write_cached(path, &file);
        }
    }
}

/// The tensor of a file that has the digest of the others.
const DIGEST: &str = "planish.blake3";

fn add(hasher: &mut blake3::Hasher, tensors: &[(String, Tensor)]) {
    for (name, tensor) in tensors {
        hasher.update(format!("\n{name} {}\n", tensor.ty()).as_bytes()).update(&tensor.to_bytes());
    }
}

/// The digest of tensors in the order of their names.
fn digest(tensors: &[(String, Tensor)]) -> blake3::Hash {
    let mut sorted = tensors.to_vec();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = blake3::Hasher::new();
    add(&mut hasher, &sorted);
    hasher.finalize()
}

/// The outputs of a file, if they are those that were kept.
fn checked(mut tensors: Tensors) -> Option<Tensors> {
    let at = tensors.iter().position(|(name, _)| name == DIGEST)?;
    let (_, kept) = tensors.remove(at);
    (kept.to_bytes() == digest(&tensors).as_bytes()).then_some(tensors)
}

/// What tells the binary that runs from others.
fn binary() -> Option<String> {
    let metadata = fs::metadata(env::current_exe().ok()?).ok()?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), metadata.len(), changed.as_nanos()))
}

/// Removes the oldest files of a folder until there is room for so many bytes more.
fn make_room(folder: &Path, bytes: u64) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, own, path) in files {
        if total + bytes <= MOST_BYTES {
            return;
        }
        // It may be gone already.
        let _ = fs::remove_file(path);
        total = total.saturating_sub(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(values: &[f32]) -> Tensors {
        vec![("y".to_owned(), Tensor::new(vec![values.len()], values.to_vec()).unwrap())]
    }

    fn cache(folder: &Path, identity: &str) -> ReferenceCache {
        ReferenceCache { folder: folder.join("reference"), identity: identity.to_owned() }
    }

    #[test]
    fn outputs_are_computed_once_for_a_model_a_part_and_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, mut runs) = (cache(folder.path(), "model"), 0);
        let mut ask = |cache: &ReferenceCache, part: &str, x: f32| {
            let before = runs;
            let mut compute = || {
                runs += 1;
                Ok(tensors(&[x, 2.0]))
            };
            assert_eq!(cache.outputs(part, &tensors(&[x]), &mut compute).unwrap(), tensors(&[x, 2.0]));
            runs - before
        };
        assert_eq!((ask(&cache, "a", 1.0), ask(&cache, "a", 1.0)), (1, 0));
        assert_eq!((ask(&cache, "a", 3.0), ask(&cache, "b", 1.0)), (1, 1));
        let other = ReferenceCache { identity: "other".to_owned(), ..cache.clone() };
        assert_eq!(ask(&other, "a", 1.0), 1);
        // So are a file in which a bit was flipped, and one that is cut off.
        for entry in fs::read_dir(&cache.folder).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            // The tensors lie after the header; the last ones are the outputs or their digest.
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path, bytes).unwrap();
        }
        assert_eq!((ask(&cache, "a", 1.0), ask(&cache, "a", 1.0)), (1, 0));
        for entry in fs::read_dir(&cache.folder).unwrap() {
            fs::write(entry.unwrap().path(), b"cut").unwrap();
        }
        assert_eq!((ask(&cache, "a", 1.0), ask(&cache, "a", 1.0)), (1, 0));
    }

    #[test]
    fn the_oldest_files_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for (age, name) in [(3, "old"), (1, "new"), (2, "middle")] {
            let file = fs::File::create(place(name)).unwrap();
            file.set_len(MOST_BYTES / 4).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(age * 60)).unwrap();
        }
        make_room(folder.path(), MOST_BYTES / 4);
        assert!(place("old").exists());
        make_room(folder.path(), MOST_BYTES / 2);
        assert!(!place("old").exists() && place("middle").exists() && place("new").exists());
    }
}
