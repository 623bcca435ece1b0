//! What recordings become when they enter a model.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use planish_data::{SoundBandForm, SoundProcessor, SoundsInGraph};
use planish_models::{BandForm, BandSteps, SoundSteps};

/// What the settings in the folder of a model do to recordings, for a graph that does it; `None` where no file says it.
///
/// # Errors
/// When the settings are not supported, or are such that a graph of fixed operators does not compute.
pub(super) fn steps(folder: &Path) -> Result<Option<SoundSteps>> {
    let processor = SoundProcessor::open(folder).context("preprocessing=graph")?;
    let Some(processor) = processor else { return Ok(None) };
    let steps = processor.in_graph().map_err(|why| {
        anyhow!(
            "preprocessing=graph: {why}, as the settings of the feature extractor in {} say; leave preprocessing out, and process \
             recordings before the graph",
            folder.display()
        )
    })?;
    Ok(Some(match steps {
        SoundsInGraph::Samples { normalize, masks, padding } => {
            SoundSteps::Samples { normalize, masks, padding: f64::from(padding) }
        }
        SoundsInGraph::Bands(of) => SoundSteps::Bands(BandSteps {
            samples: of.samples,
            mirrored: of.mirrored,
            frames: of.frames,
            length: of.length,
            hop: of.hop,
            transform: of.transform,
            bank: of.bank,
            bands: of.bands,
            floor: of.floor,
            form: match of.form {
                SoundBandForm::Whisper => BandForm::Whisper,
                SoundBandForm::Kaldi { normalize } => BandForm::Kaldi { normalize },
            },
        }),
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "this is a test")]
mod tests {
    use std::fs;

    use planish_eval::{Tensor, evaluate};
    use planish_models::{LoadOptions, Preprocessing};
    use serde_json::{Value, json};

    use super::*;
    use crate::source::SourceModel;

    /// A model of fixtures, with settings of a feature extractor.
    fn model(fixture: &str, settings: &Value) -> (tempfile::TempDir, SourceModel) {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(fixture);
        for file in ["config.json", "model.safetensors"] {
            fs::copy(from.join(file), folder.path().join(file)).unwrap();
        }
        fs::write(folder.path().join("preprocessor_config.json"), settings.to_string()).unwrap();
        let model = SourceModel::open(folder.path()).unwrap();
        (folder, model)
    }

    /// A sweep of tones in noise, so many samples of it.
    fn recording(count: usize, loudness: f32) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(count as u64);
        let sample = |at: usize| {
            let at = at as f32 / 16_000.0;
            0.6 * (at * (300.0 + 900.0 * at)).sin() + 0.2 * (2.0 * random.f32() - 1.0)
        };
        // Levels of 16 bits, as files have them.
        (0..count).map(sample).map(|sample| (sample * loudness * 32_767.0).round() / 32_768.0).collect()
    }

    /// The largest difference between what the graph makes of recordings in a batch, and what the processor does.
    fn difference(model: &SourceModel, folder: &Path, recordings: &[Vec<f32>]) -> f64 {
        let options = LoadOptions { preprocessing: Some(Preprocessing::Graph), ..LoadOptions::default() };
        let mut graph = model.load(options).unwrap().parts.remove(0).graph;
        let of_recordings = |id| graph.value(id).name.strip_prefix("audio").is_some_and(|rest| rest.starts_with('.'));
        let last = graph.nodes().map(|(_, node)| node.outputs[0]).filter(|id| of_recordings(*id)).last().unwrap();
        graph.add_output("features", last);
        let longest = recordings.iter().map(Vec::len).max().unwrap();
        let filled = |recording: &Vec<f32>, with: f32| {
            let rest = std::iter::repeat_n(with, longest - recording.len());
            recording.iter().copied().chain(rest).collect::<Vec<f32>>()
        };
        let shape = vec![recordings.len(), longest];
        let samples: Vec<f32> = recordings.iter().flat_map(|recording| filled(recording, 0.0)).collect();
        let ones = recordings.iter().map(|recording| vec![1.0; recording.len()]);
        let mask: Vec<i64> = ones.flat_map(|ones| filled(&ones, 0.0)).map(|one| one as i64).collect();
        let mut inputs = vec![("audio", Tensor::new(shape.clone(), samples).unwrap())];
        if graph.inputs().len() > 1 {
            inputs.push(("audio_mask", Tensor::new(shape, mask).unwrap()));
        }
        let outputs = evaluate(&graph, &inputs).unwrap();
        let (_, given) = outputs.iter().find(|(name, _)| name == "features").unwrap();
        let processor = SoundProcessor::open(folder).unwrap().unwrap();
        let prepared: Vec<_> = recordings.iter().map(|samples| processor.prepare(samples).unwrap()).collect();
        let wanted = processor.batch(&prepared).unwrap();
        assert_eq!(given.shape(), wanted.shape);
        let given = given.to_f64();
        given.iter().zip(&wanted.values).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn graphs_compute_what_processors_do() {
        const LENGTHS: [usize; 7] = [401, 977, 3001, 12_345, 15_999, 16_001, 33_333];
        let whisper = |settings: Value| {
            let mut all = json!({"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1});
            settings.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
            ("speech", all)
        };
        let ast = |normalizes: bool| {
            let settings = json!({
                "feature_extractor_type": "ASTFeatureExtractor", "max_length": 24, "num_mel_bins": 16, "do_normalize": normalizes
            });
            ("goldens/ast", settings)
        };
        let samples = |masks: bool, padding: f64| {
            let settings = json!({
                "feature_extractor_type": "Wav2Vec2FeatureExtractor", "return_attention_mask": masks, "padding_value": padding
            });
            ("goldens/wav2vec2", settings)
        };
        let all = [
            whisper(json!({})),
            whisper(json!({"n_fft": 512})),
            whisper(json!({"chunk_length": 2, "hop_length": 320})),
            whisper(json!({"chunk_length": 2, "sampling_rate": 8000})),
            whisper(json!({"n_fft": 64})),
            ast(true),
            ast(false),
            samples(true, 0.0),
            samples(true, 0.25),
            samples(false, 0.0),
        ];
        for (fixture, settings) in all {
            let (folder, model) = model(fixture, &settings);
            for (number, count) in LENGTHS.into_iter().enumerate() {
                let loudness = [1.0, 0.001][number % 2];
                let one = recording(count, loudness);
                let alone = difference(&model, folder.path(), std::slice::from_ref(&one));
                let both = difference(&model, folder.path(), &[one, recording(2222, 0.3)]);
                assert!(alone < 1e-4 && both < 1e-4, "{settings}, {count} samples: {alone:.1e} and {both:.1e}");
            }
        }
    }

    #[test]
    fn settings_that_no_graph_follows_are_refused() {
        let options = || LoadOptions { preprocessing: Some(Preprocessing::Graph), ..LoadOptions::default() };
        for (fixture, settings, says) in [
            ("goldens/wav2vec2", json!({"feature_extractor_type": "ClapFeatureExtractor"}), "before the graph"),
            ("goldens/wav2vec2", json!({"feature_extractor_type": "ASTFeatureExtractor"}), "the model takes samples"),
            ("goldens/ast", json!({"feature_extractor_type": "Wav2Vec2FeatureExtractor"}), "makes samples"),
            ("goldens/ast", json!({"feature_extractor_type": "ASTFeatureExtractor"}), "of 24 x 16"),
            ("goldens/bert", json!({"feature_extractor_type": "ASTFeatureExtractor"}), "takes no recordings"),
            ("speech", json!({"feature_extractor_type": "WhisperFeatureExtractor", "dither": 0.1}), "random noise"),
        ] {
            let (_folder, model) = model(fixture, &settings);
            let said = model.load(options()).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(said.contains(says), "{settings}: {said}");
        }
    }
}
