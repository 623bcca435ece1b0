//! Checkpoints of sentence-transformers: the modules after the model, which no graph has.

use std::path::Path;

use planish_files::Kind;
use serde_json::Value;

/// The file that lists the modules of such a checkpoint.
const MODULES: &str = "modules.json";

/// How pooling is called by the keys of its configuration.
const MODES: &[(&str, &str)] = &[
    ("pooling_mode_mean_tokens", "mean"),
    ("pooling_mode_cls_token", "first-token"),
    ("pooling_mode_lasttoken", "last-token"),
    ("pooling_mode_max_tokens", "max"),
    ("pooling_mode_mean_sqrt_len_tokens", "mean-by-root-length"),
    ("pooling_mode_weightedmean_tokens", "weighted-mean"),
];

/// What a user of the embeddings must know: that the pooling of a checkpoint's folder is not in the
/// graph, nor in the output of one vector a row; `None` where there is none. What cannot be read is not the model's, and passed over.
pub(crate) fn note(folder: &Path, pooled: Option<&str>) -> Option<String> {
    let read = |path: &Path| serde_json::from_slice::<Value>(&planish_files::read(path, &Kind::SETTINGS).ok()?).ok();
    let modules = read(&folder.join(MODULES))?;
    let is_pooling = |module: &&Value| module["type"].as_str().is_some_and(|kind| kind.ends_with("Pooling"));
    let name = modules.as_array()?.iter().find(is_pooling)?["path"].as_str()?.to_owned();
    let config = read(&folder.join(&name).join("config.json")).unwrap_or_default();
    let modes: Vec<&str> = MODES.iter().filter(|(key, _)| config[*key] == true).map(|(_, mode)| *mode).collect();
    let pooling = format!("{} pooling of {name} is not in the graph", modes.join(" and "));
    let pooler = pooled.map_or_else(String::new, |pooled| format!("; {pooled} is not the sentence embedding"));
    Some(format!("{}{pooler}", pooling.trim_start()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn pooling_is_named_as_far_as_it_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let noted = |pooled: Option<&str>| note(folder.path(), pooled);
        assert_eq!(noted(Some("pooler_output")), None);
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(MODULES, r#"[{"type": "sentence_transformers.models.Transformer", "path": ""}]"#);
        assert_eq!(noted(Some("pooler_output")), None);
        let pooling = r#"{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}"#;
        write(MODULES, &format!(r#"[{{"type": "Transformer", "path": ""}}, {pooling}]"#));
        assert_eq!(noted(None).unwrap(), "pooling of 1_Pooling is not in the graph");
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        write("1_Pooling/config.json", r#"{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#);
        let all = "mean pooling of 1_Pooling is not in the graph; pooler_output is not the sentence embedding";
        assert_eq!(noted(Some("pooler_output")).unwrap(), all);
    }
}
