//! What a graph of fixed operators computes of samples in the place of a processor.

use super::filter_bank::{self, Form};
use super::{Kind, Prepared, Processor, waveform};
use crate::features::LEAST_ENERGY;

/// The steps of a processor, from samples at its rate on.
#[derive(Clone, Debug, PartialEq)]
pub enum InGraph {
    /// The samples stay samples.
    Samples {
        /// What is added to the variance, where samples get a mean of 0 and a variance of 1.
        normalize: Option<f64>,
        /// Whether the samples of a recording alone count for that, and not what fills it up.
        masks: bool,
        /// What fills recordings up.
        padding: f32,
    },
    /// Energies of bands in a fixed number of frames.
    Bands(BandSteps),
}

/// From samples to energies of bands, and on.
#[derive(Clone, Debug, PartialEq)]
pub struct BandSteps {
    /// The samples that recordings are cut or filled up to.
    pub samples: usize,
    /// How many of them are mirrored before the first one, and after the last one as far as frames reach.
    pub mirrored: usize,
    /// The number of frames.
    pub frames: usize,
    /// Samples of a frame.
    pub length: usize,
    /// Samples from one frame to the next.
    pub hop: usize,
    /// What the samples of a frame are multiplied by: the real parts of all frequencies, and then their imaginary parts,
    /// [2 * frequencies, length].
    pub transform: Vec<f64>,
    /// The weights of frequencies in bands, [bands, frequencies].
    pub bank: Vec<f64>,
    /// The number of bands.
    pub bands: usize,
    /// The least energy.
    pub floor: f64,
    /// What energies become.
    pub form: BandForm,
}

/// What energies of bands become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BandForm {
    /// Logarithms to the base of 10, at most 8 below the largest, plus 4 and divided by 4: [bands, frames].
    Whisper,
    /// Natural logarithms, with zeros after the recording, and all of them less a mean and divided by twice a deviation:
    /// [frames, bands].
    Kaldi {
        /// The mean and the deviation.
        normalize: Option<[f64; 2]>,
    },
}

/// Samples as they are, of which a graph makes inputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples {
    /// The fewest samples.
    least: usize,
    /// The most samples that the graph reads, and how many a recording has of which it leaves some out.
    most: Option<[usize; 2]>,
}

impl Samples {
    pub(super) fn fewest(self) -> usize {
        self.least
    }

    pub(super) fn needed(self) -> Option<usize> {
        self.most.map(|[_, cut]| cut)
    }

    pub(super) fn prepare(self, samples: &[f32]) -> Result<Prepared, String> {
        if samples.len() < self.least {
            return Err(format!("it has {} samples, and the features of the model need {}", samples.len(), self.least));
        }
        let taken = self.most.map_or(samples.len(), |[most, _]| most.min(samples.len()));
        Ok(Prepared {
            values: samples[..taken].to_vec(),
            length: taken,
            places: taken,
            is_longer: false,
            is_cut: self.most.is_some_and(|[_, cut]| samples.len() >= cut),
            seconds: 0.0,
        })
    }
}

impl Processor {
    /// What a graph computes in the place of this processor.
    ///
    /// # Errors
    /// Why none does.
    pub fn in_graph(&self) -> Result<InGraph, String> {
        if self.is_left {
            return Err("recordings are filled up before their first sample (`padding_side`)".to_owned());
        }
        match &self.kind {
            Kind::Waveform(waveform) => Ok(InGraph::Samples {
                normalize: waveform.normalizes.then_some(waveform::EPSILON),
                masks: waveform.masks,
                padding: self.padding,
            }),
            Kind::LogMel(mel, samples) => {
                if self.padding != 0.0 {
                    return Err("recordings are filled up with other numbers than 0 (`padding_value`)".to_owned());
                }
                let spectra = mel.spectra();
                let [length, hop] = spectra.lengths();
                Ok(InGraph::Bands(BandSteps {
                    samples: *samples,
                    mirrored: spectra.margin(),
                    frames: mel.frames(*samples),
                    length,
                    hop,
                    transform: spectra.matrix(),
                    bank: mel.bank().matrix(),
                    bands: mel.bank().len(),
                    floor: LEAST_ENERGY,
                    form: BandForm::Whisper,
                }))
            }
            Kind::FilterBank(bank) => {
                let (spectra, filters, form) = bank.parts();
                let Form::Fixed { frames, normalize } = form else {
                    return Err("there are as many frames as recordings have".to_owned());
                };
                let [length, hop] = spectra.lengths();
                Ok(InGraph::Bands(BandSteps {
                    samples: (frames - 1) * hop + length,
                    mirrored: 0,
                    frames,
                    length,
                    hop,
                    transform: spectra.matrix(),
                    bank: filters.matrix(),
                    bands: filters.len(),
                    floor: filter_bank::FLOOR,
                    form: BandForm::Kaldi { normalize },
                }))
            }
            Kind::Clap(_) => Err("recordings are repeated, or parts of them are taken, as they are long".to_owned()),
            Kind::Parakeet(_) => Err("there are as many frames as recordings have".to_owned()),
            Kind::Samples(_) => Err("recordings are samples already".to_owned()),
        }
    }

    /// The processor of samples for a graph that does the rest of this one.
    ///
    /// # Errors
    /// As of [`in_graph`](Self::in_graph).
    pub fn samples_alone(&self) -> Result<Self, String> {
        let samples = match self.in_graph()? {
            InGraph::Samples { .. } => Samples { least: 1, most: None },
            InGraph::Bands(BandSteps { samples, length, hop, form, .. }) => match form {
                BandForm::Whisper => Samples { least: 1, most: Some([samples, samples + 1]) },
                BandForm::Kaldi { .. } => Samples { least: length, most: Some([samples, samples + hop]) },
            },
        };
        Ok(Self { kind: Kind::Samples(samples), ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn processor(settings: &Value) -> Processor {
        Processor::of(settings.as_object().unwrap()).unwrap()
    }

    #[test]
    fn what_no_graph_computes_has_a_reason() {
        for (settings, why) in [
            (json!({"feature_extractor_type": "WhisperFeatureExtractor", "padding_side": "left"}), "padding_side"),
            (json!({"feature_extractor_type": "WhisperFeatureExtractor", "padding_value": 0.5}), "padding_value"),
            (json!({"feature_extractor_type": "SeamlessM4TFeatureExtractor"}), "as many frames"),
            (json!({"feature_extractor_type": "ParakeetFeatureExtractor"}), "as many frames"),
            (json!({"feature_extractor_type": "ClapFeatureExtractor"}), "repeated"),
        ] {
            let said = processor(&settings).in_graph().unwrap_err();
            assert!(said.contains(why), "{settings}: {said}");
            assert!(processor(&settings).samples_alone().is_err());
        }
    }

    #[test]
    fn recordings_are_cut_where_the_processor_cuts_them() {
        for settings in [
            json!({"feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1}),
            json!({"feature_extractor_type": "ASTFeatureExtractor", "max_length": 3}),
        ] {
            let whole = processor(&settings);
            let alone = whole.samples_alone().unwrap();
            for count in [399, 400, 719, 720, 879, 880, 15_999, 16_000, 16_001] {
                let samples = vec![0.5; count];
                let [whole, alone] = [&whole, &alone].map(|processor| processor.prepare(&samples));
                assert_eq!(whole.as_ref().map(|one| one.is_cut), alone.as_ref().map(|one| one.is_cut), "{count}");
            }
        }
    }
}
