//! The arguments that say how wide a vocabulary is, and which logits the graph gives.

use anyhow::Result;
use clap::ValueEnum;
use planish_passes::{Logits, Padding, Target};

use super::Usage;

/// The vocabulary and its scores.
#[derive(clap::Args)]
#[command(next_help_heading = "Vocabulary and logits")]
pub(super) struct LogitsArguments {
    /// Pad the token embedding and the LM head to a multiple of N rows; `off` or 0 turns the padding off [default:
    /// off for onnx and ort, 64 for ort-cuda, trt and cuda]
    #[arg(long, value_name = "N", value_parser = multiple)]
    pad_vocab: Option<usize>,
    /// The logits that the graph gives, such as last,padded: one of all and last, and one of sliced and padded [default:
    /// all,sliced]
    #[arg(long, value_name = "HOW,..", value_delimiter = ',')]
    logits: Vec<Choice>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Logits of each token
    All,
    /// Logits of the last token of each row, for decoders: a prompt takes less time and memory. `evaluate` and `generate
    /// --prompt-lookup` need all logits
    Last,
    /// A padded vocabulary has one column for each token
    Sliced,
    /// A padded vocabulary has one column for each row of the head; the columns without a token have the lowest finite
    /// number
    Padded,
}

/// The value of `--pad-vocab`.
fn multiple(text: &str) -> Result<usize, String> {
    match text {
        "off" => Ok(0),
        _ => text.parse().map_err(|_| "expected a number of rows, or off".to_owned()),
    }
}

impl LogitsArguments {
    /// Whether the vocabulary is to be padded, on any target.
    pub(super) fn pads(&self) -> bool {
        self.pad_vocab.is_some_and(|multiple| multiple > 0)
    }

    /// Whether only the last token of each row gets logits.
    pub(super) fn last(&self) -> Result<bool> {
        self.chosen([Choice::All, Choice::Last])
    }

    /// The padding that the options request, else the default of the target.
    pub(super) fn padding(&self, target: &Target) -> Result<Padding> {
        let mut padding = Padding::of(target);
        if let Some(multiple) = self.pad_vocab {
            padding.vocabulary = Some(multiple).filter(|multiple| *multiple > 0);
        }
        if self.chosen([Choice::Sliced, Choice::Padded])? {
            padding.logits = Logits::Padded;
            if padding.vocabulary.is_none() {
                let reason = "--logits padded needs a padded vocabulary; add --pad-vocab 64";
                return Err(Usage(reason.to_owned()).into());
            }
        }
        Ok(padding)
    }

    /// Whether the second of two choices that exclude each other is given.
    fn chosen(&self, [first, second]: [Choice; 2]) -> Result<bool> {
        match [first, second].map(|choice| self.logits.contains(&choice)) {
            [true, true] => {
                let names =
                    [first, second].map(|choice| choice.to_possible_value().map(|value| value.get_name().to_owned()));
                let [first, second] = names.map(Option::unwrap_or_default);
                Err(Usage(format!("--logits takes one of {first} and {second}")).into())
            }
            [_, given] => Ok(given),
        }
    }
}
