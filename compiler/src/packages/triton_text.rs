//! A tokenizer in front of a model of Triton: a model of the server's python backend that reads texts, and an ensemble of both.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use planish_artifact::Artifact;
use planish_artifact::files::{create_folders_within, write_within};
use planish_artifact::manifest::PartManifest;
use planish_artifact::value::ValueInfo;
use planish_data::sentence::SentenceSettings;
use planish_data::tokenizer::TOKENIZER;
use planish_files::Kind;
use planish_ir::{InputRole, OutputRole};

use super::triton::{CONFIG, Runner, largest_batch, quoted, tensor};
use crate::engine::Profiles;

/// The model that reads texts. It needs the package tokenizers in the server's Python.
const PROGRAM: &str = include_str!("triton_tokenizer.py");

/// The input of texts: strings [rows, 1].
const TEXT: &str = "  {\n    name: \"TEXT\"\n    data_type: TYPE_STRING\n    dims: [ 1 ]\n  }";

/// What stands in the folder of the ensemble's version, which has to be there and has no file of a model.
const EMPTY: &str = "An ensemble has no files of its own; Triton wants a folder for its version.\n";

/// Writes both models beside the model of an artifact; returns the names of the files.
///
/// # Errors
/// When the model takes more than texts, there is no tokenizer.json, or a file cannot be written.
pub(super) fn write(artifact: &Artifact, profiles: Option<&Profiles>) -> Result<Vec<String>> {
    let Artifact { folder, manifest, backend, .. } = artifact;
    let [part] = manifest.parts.as_slice() else {
        bail!(
            "--recipe tokenizer=true is for models of one graph, and this one has {}; leave it out",
            manifest.parts.len()
        )
    };
    let runner = Runner::of(backend);
    let largest = largest_batch(part, &manifest.parts, profiles);
    ensure!(largest > 0, "--recipe tokenizer=true is for graphs that take batches; leave it out");
    let path = folder.join(TOKENIZER);
    let tokenizer = planish_files::read_if_there(&path, &Kind::TOKENIZER)?;
    let tokenizer = tokenizer.with_context(|| {
        format!(
            "--recipe tokenizer=true: there is no {TOKENIZER} beside the model; save it with tokenizers or transformers"
        )
    })?;
    let settings = SentenceSettings::read(folder)?;
    let longest = settings.max_length.into_iter().chain(manifest.max_sequence_length).min();
    let longest = longest.context(
        "--recipe tokenizer=true: the model has no longest text; set `model_max_length` in tokenizer_config.json",
    )?;
    let mut parameters = vec![
        ("max_length".to_owned(), longest.to_string()),
        ("truncation_side".to_owned(), if settings.cuts_left { "left" } else { "right" }.to_owned()),
        ("lower_case".to_owned(), settings.lower_case.to_string()),
        ("pad_token_id".to_owned(), manifest.pad_token_id.unwrap_or(0).to_string()),
    ];
    for input in &part.inputs {
        let Some(given) = given(input.role) else {
            bail!("--recipe tokenizer=true: a tokenizer does not give the input `{}`; leave it out", input.value.name)
        };
        parameters.push((input.value.name.clone(), given.to_owned()));
    }
    let list = |values: &[&ValueInfo]| -> Result<String> {
        let tensors = values.iter().map(|value| tensor(value, runner, true)).collect::<Result<Vec<_>>>()?;
        Ok(tensors.join(",\n"))
    };
    let inputs: Vec<&ValueInfo> = part.inputs.iter().map(|input| &input.value).collect();
    let outputs = given_by_ensemble(part);
    let model = &manifest.source.name;
    let (reader, ensemble) = (format!("{model}-tokenizer"), format!("{model}-text"));
    let parameters: String = parameters
        .iter()
        .map(|(key, value)| {
            format!("parameters {{\n  key: {}\n  value {{ string_value: {} }}\n}}\n", quoted(key), quoted(value))
        })
        .collect();
    let of_reader = format!(
        "backend: \"python\"\nmax_batch_size: {largest}\ninput [\n{TEXT}\n]\noutput [\n{}\n]\n{parameters}\
         instance_group [\n  {{\n    count: 1\n    kind: KIND_CPU\n  }}\n]\n",
        list(&inputs)?
    );
    let of_ensemble = format!(
        "platform: \"ensemble\"\nmax_batch_size: {largest}\ninput [\n{TEXT}\n]\noutput [\n{}\n]\nensemble_scheduling {{\n  step [\n\
         {},\n{}\n  ]\n}}\n",
        list(&outputs)?,
        step(&reader, &["TEXT"], &names(&inputs)),
        step(model, &names(&inputs), &names(&outputs)),
    );
    let files = [
        (format!("{reader}/{CONFIG}"), of_reader.as_str()),
        (format!("{reader}/1/model.py"), PROGRAM),
        (format!("{reader}/1/{TOKENIZER}"), tokenizer.as_str()),
        (format!("{ensemble}/{CONFIG}"), of_ensemble.as_str()),
        (format!("{ensemble}/1/README"), EMPTY),
    ];
    for (name, text) in &files {
        let path = Path::new(name);
        create_folders_within(folder, path.parent().unwrap_or(path))?;
        write_within(&folder.join(name), text.as_bytes())?;
    }
    Ok(files.map(|(name, _)| name).into())
}

/// What a tokenizer gives for an input.
fn given(role: InputRole) -> Option<&'static str> {
    match role {
        InputRole::TokenIds => Some("ids"),
        InputRole::Mask => Some("mask"),
        InputRole::TokenTypes => Some("types"),
        _ => None,
    }
}

/// What the ensemble gives: the vector of a text where there is one, or else all that the model gives.
fn given_by_ensemble(part: &PartManifest) -> Vec<&ValueInfo> {
    let outputs = || part.outputs.iter();
    match outputs().find(|output| output.role == OutputRole::SentenceEmbedding) {
        Some(output) => vec![&output.value],
        None => outputs().map(|output| &output.value).collect(),
    }
}

fn names<'a>(values: &[&'a ValueInfo]) -> Vec<&'a str> {
    values.iter().map(|value| value.name.as_str()).collect()
}

/// A step of the ensemble, in which tensors keep their names.
fn step(model: &str, inputs: &[&str], outputs: &[&str]) -> String {
    let map = |kind: &str, names: &[&str]| -> String {
        let one =
            |name: &&str| format!("      {kind} {{\n        key: {0}\n        value: {0}\n      }}\n", quoted(name));
        names.iter().map(one).collect()
    };
    format!(
        "    {{\n      model_name: {}\n      model_version: -1\n{}{}    }}",
        quoted(model),
        map("input_map", inputs),
        map("output_map", outputs)
    )
}
