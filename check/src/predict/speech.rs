//! What models of recordings say of each frame: a text with the times of its words, or labels.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Result, bail};
use planish_data::tokenizer::ctc::{CtcDecoder, Timed, frame_places, frame_seconds, likeliest_tokens};
use planish_eval::Tensor;
use serde::Serialize;

use super::head::Head;
use super::outcome::{Outcome, sigmoid};
use super::read::Batch;
use crate::positions::floats;

/// How frames become what is predicted.
pub(super) enum Frames {
    /// The likeliest of so many tokens of each frame become a text.
    Text { decoder: Box<CtcDecoder>, vocabulary: usize },
    /// Each frame has labels, of which several may be true.
    Labels(Rc<[String]>),
}

/// A word, and when it is said.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Word {
    text: String,
    /// The first frame, and the one after the last.
    frames: [usize; 2],
    /// The same in seconds; absent where the configuration does not say how long a frame is.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<f64>,
}

impl Head {
    /// A head whose predictions are made of the scores of frames.
    ///
    /// # Errors
    /// When the length of a frame cannot be read, or the settings of features are not supported.
    pub(super) fn of_frames(output: String, frames: Frames, folder: &Path) -> Result<Self> {
        Ok(Self::Frames { output, frames, seconds: frame_seconds(folder)?, places: frame_places(folder)? })
    }

    /// A text of each recording.
    ///
    /// # Errors
    /// When the vocabulary cannot be read.
    pub(super) fn of_speech(output: String, vocabulary: usize, folder: &Path) -> Result<Self> {
        let decoder = Box::new(CtcDecoder::open(folder, None)?);
        Self::of_frames(output, Frames::Text { decoder, vocabulary }, folder)
    }
}

/// What is predicted of the scores of frames, [recordings, frames, scores], of which each has so many seconds and is made of so many
/// places of features.
pub(super) fn of_frames(
    logits: &Tensor,
    frames: &Frames,
    (seconds, places): (Option<f64>, Option<usize>),
    batch: &Batch<'_>,
) -> Result<Vec<Outcome>> {
    let &[_, count, columns] = logits.shape() else {
        bail!("the scores of frames are {:?}, not [recordings, frames, scores]", logits.shape())
    };
    let numbers = floats(logits);
    let outcome = |(row, scores): (usize, &[f32])| {
        // Frames of places that are masked are of nothing.
        let there = batch.positions.as_ref().and_then(|positions| positions.count_in(row)).zip(places);
        let there = there.map_or(count, |(read, places)| read.div_ceil(places).min(count));
        let scores = scores.get(..there * columns).unwrap_or(scores);
        if scores.iter().any(|score| !score.is_finite()) {
            return Ok(Outcome::NotFinite);
        }
        match frames {
            Frames::Text { decoder, vocabulary } => {
                let decoded = decoder.decode(&likeliest_tokens(scores, columns, *vocabulary))?;
                let words = decoded.words.into_iter().map(|word| word_of(word, seconds)).collect();
                Ok(Outcome::Speech { text: decoded.text, words })
            }
            Frames::Labels(labels) => {
                let frame = |row: &[f32]| row.iter().map(|logit| sigmoid(*logit) as f32).collect();
                let frames = scores.chunks_exact(columns.max(1)).map(frame).collect();
                Ok(Outcome::Frames { labels: labels.to_vec(), seconds, frames })
            }
        }
    };
    numbers.chunks_exact((count * columns).max(1)).take(batch.texts.len()).enumerate().map(outcome).collect()
}

fn word_of(word: Timed, seconds: Option<f64>) -> Word {
    let frames = [word.frames.start, word.frames.end];
    // To thousandths, as subtitles have times.
    let [start, end] = frames.map(|frame| seconds.map(|seconds| (frame as f64 * seconds * 1000.0).round() / 1000.0));
    Word { text: word.text, frames, start, end }
}

#[cfg(test)]
mod tests {
    use planish_data::chunks::ReadSample;

    use super::*;

    fn outcome(frames: &Frames, shape: [usize; 3], numbers: &[f32]) -> String {
        let sample = ReadSample { id: None, document: None, tokens: 0, is_cut: false, kept: None, picture: None };
        let batch = Batch { texts: vec![&sample], positions: None, is_left: false, tokenizer: None, marked: None };
        let logits = Tensor::new(shape.to_vec(), numbers.to_vec()).unwrap();
        let found = of_frames(&logits, frames, (Some(0.02), None), &batch).unwrap();
        serde_json::to_string(&found).unwrap()
    }

    #[test]
    fn frames_become_texts_with_times() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vocab.json"), r#"{"<pad>": 0, "|": 1, "a": 2}"#).unwrap();
        let decoder = Box::new(CtcDecoder::open(folder.path(), None).unwrap());
        let text = Frames::Text { decoder, vocabulary: 3 };
        // The last column fills a vocabulary up.
        let scores = [[0.0, 0.0, 1.0, 9.0], [0.0, 0.0, 1.0, 9.0], [0.0, 1.0, 0.0, 9.0], [0.0, 0.0, 1.0, 9.0]];
        let words =
            r#"{"text":"a","frames":[0,2],"start":0.0,"end":0.04},{"text":"a","frames":[3,4],"start":0.06,"end":0.08}"#;
        assert_eq!(
            outcome(&text, [1, 4, 4], scores.as_flattened()),
            format!(r#"[{{"text":"a a","words":[{words}]}}]"#)
        );
        assert_eq!(outcome(&text, [1, 1, 4], &[f32::NAN, 0.0, 0.0, 0.0]), "[null]");
    }

    #[test]
    fn frames_have_the_probabilities_of_labels() {
        let labels = Frames::Labels(["a", "b"].map(str::to_owned).into());
        let expected = r#"[{"labels":["a","b"],"seconds":0.02,"frames":[[0.5,0.5],[0.5,0.5]]}]"#;
        assert_eq!(outcome(&labels, [1, 2, 2], &[0.0; 4]), expected);
    }
}
