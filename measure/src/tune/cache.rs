//! What searches found, kept in the user's folder of caches by all that the choice depends on.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use planish_artifact::files::write_cached;
use planish_artifact::tuning::Tuning;
use planish_files::Kind;
use planish_runtimes::cache_folder;

use super::CHOICES;

/// The file of one search.
pub(super) struct TuningCache {
    path: PathBuf,
}

impl TuningCache {
    /// That of a key; `None` where the user has no folder of caches.
    pub(super) fn of_user(key: &str) -> Option<Self> {
        Some(Self::within(cache_folder::of_user()?.join("tuning"), key))
    }

    /// The same in a folder. The choices that this version has are part of the key.
    fn within(folder: PathBuf, key: &str) -> Self {
        let names: Vec<&str> = CHOICES.iter().map(|choice| choice.name).collect();
        let whole = [env!("CARGO_PKG_VERSION"), &names.join(" "), key].join("\n");
        Self { path: folder.join(format!("{}.json", blake3::hash(whole.as_bytes()).to_hex())) }
    }

    /// What was found in at least as much time. A longer search starts anew.
    pub(super) fn known(&self, time: Duration) -> Option<Tuning> {
        let text = planish_files::read_text(&self.path, &Kind::RECIPE).ok()?;
        let tuning: Tuning = serde_json::from_str(&text).ok()?;
        (tuning.seconds >= time.as_secs()).then_some(tuning)
    }

    /// Keeps what was found, if that is possible.
    pub(super) fn keep(&self, tuning: &Tuning) {
        let Some(folder) = self.path.parent() else { return };
        if let (Ok(()), Ok(text)) = (fs::create_dir_all(folder), serde_json::to_vec_pretty(tuning)) {
            let _ = write_cached(&self.path, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_artifact::tuning::{Processor, RunSettings};

    use super::*;

    #[test]
    fn a_choice_is_taken_again_for_the_same_key_and_no_more_time() {
        let folder = tempfile::tempdir().unwrap();
        let cache = |key: &str| TuningCache::within(folder.path().join("tuning"), key);
        let tuning = Tuning {
            processor: Processor { model: "A".to_owned(), flags: Vec::new() },
            runtime: "onnxruntime".to_owned(),
            version: "1".to_owned(),
            cores: 2,
            shapes: vec!["1x128".to_owned()],
            seconds: 60,
            choices: [("biases".to_owned(), "kept".to_owned())].into(),
            run: RunSettings::default(),
            ratio: 0.9,
            ratio_ci95: Some([0.8, 0.95]),
            cosines: Some([0.998, 0.999]),
            candidates: 1,
            against: "default".to_owned(),
        };
        let time = Duration::from_secs;
        assert_eq!(cache("key").known(time(60)), None);
        cache("key").keep(&tuning);
        assert_eq!(cache("key").known(time(60)), Some(tuning.clone()));
        assert_eq!(cache("key").known(time(10)), Some(tuning));
        assert_eq!(cache("key").known(time(61)), None);
        assert_eq!(cache("other").known(time(60)), None);
        // What is no record is measured anew.
        fs::write(&cache("key").path, "{").unwrap();
        assert_eq!(cache("key").known(time(60)), None);
    }
}
