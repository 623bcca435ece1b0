//! An encoder-decoder on a runtime: what the encoder made of prompts, and the decoder's caches.

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::PartManifest;
use planish_artifact::{Artifact, named};
use planish_data::tokenizer::token;
use planish_eval::Tensor;
use planish_ir::interface::CacheKind;
use planish_ir::{InputRole, OutputRole, PartRole};
use planish_models::names;
use planish_runtimes::{RuntimeValue, Session};

use super::cache::Cache;
use super::images::{Beginning, Sight};
use super::model::{LanguageModel, Logits, Parts, Scores, check_prompt, matrix, output};

/// Why several tokens are not read in one run.
pub(super) const READS_NO_AHEAD: &str =
    "--set prompt_lookup_num_tokens is for decoders, and this is an encoder-decoder; leave it out";

/// Why there is no conversation.
pub(super) const HAS_NO_CONVERSATION: &str =
    "a conversation is for decoders, and this is an encoder-decoder, which answers one prompt; give it with --prompt";

/// An encoder-decoder. The encoder reads the prompts, padded on the right, once, and the text begins with the decoder's start token;
/// or the encoder reads something else, and the text begins with the prompt.
pub(super) struct EncoderDecoder {
    encoder: Box<dyn Session>,
    encoder_names: EncoderNames,
    /// Reads a text from its beginning.
    decoder: Box<dyn Session>,
    decoder_names: DecoderNames,
    /// The name of what the encoder gives, among the inputs of that decoder.
    states: String,
    /// Reads one more token, where there is a cache.
    with_past: Option<WithPast>,
    start_token: i64,
    beginning: Beginning,
    /// Of the prompts, then of the texts: ids are from 0 to below these.
    vocabularies: [i64; 2],
    logits: Logits,
    /// The longest prompt and the longest text.
    longest: usize,
    /// The text of each row, all of the same length.
    rows: Vec<Vec<i64>>,
    /// The prompt of each row.
    prompts: Vec<usize>,
    /// What the encoder reads in place of the next prompts.
    shown: Vec<(String, Tensor)>,
    /// The mask of the prompt of each row, where it has one.
    mask: Option<RuntimeValue>,
    /// What the encoder gives for each row; only where the keys and values of them are not cached.
    hidden: Option<RuntimeValue>,
}

/// The decoder with a cache.
struct WithPast {
    session: Box<dyn Session>,
    names: DecoderNames,
    /// Of the text.
    own: Cache,
    /// Of the prompt: the first step gives it, and it stays.
    cross: Cache,
}

/// The names of what the encoder takes and gives.
struct EncoderNames {
    /// Of prompts, where it reads these, and of their mask.
    prompts: Option<[String; 2]>,
    /// Of the mask of what it reads in place of prompts, where that has one.
    mask: Option<String>,
    states: String,
}

/// The names of what a decoder takes besides a cache.
struct DecoderNames {
    ids: String,
    /// Of what the encoder has read; absent where the decoder attends to all that it gives.
    mask: Option<String>,
}

impl DecoderNames {
    fn of(part: &PartManifest) -> Result<Self> {
        let mask = part.input_of(InputRole::EncoderMask).map(|input| input.value.name.clone());
        Ok(Self { ids: part.named(InputRole::DecoderTokenIds)?, mask })
    }

    /// Ids of a text, and the mask of what the encoder has read, where the decoder takes it.
    fn inputs<'a>(
        &'a self,
        ids: &'a RuntimeValue,
        mask: Option<&'a RuntimeValue>,
    ) -> Result<Vec<(&'a str, &'a RuntimeValue)>> {
        let mut inputs = vec![(self.ids.as_str(), ids)];
        if let Some(name) = &self.mask {
            inputs.push((name, mask.context("what the encoder has read has no mask")?));
        }
        Ok(inputs)
    }
}

/// How many tokens may follow what the text begins with, for a prompt of ids below `vocabulary`, of texts that are `longest` tokens
/// long at most.
pub(super) fn room(prompt: &[i64], vocabulary: i64, longest: usize, beginning: Beginning, start: i64) -> Result<usize> {
    if beginning != Beginning::Start && prompt.is_empty() {
        return Ok(longest.saturating_sub(1).max(1));
    }
    check_prompt(prompt, vocabulary)?;
    if beginning != Beginning::Start {
        let begins = beginning.of(start, prompt).len();
        return match longest.saturating_sub(begins) {
            0 => bail!("the text begins with {begins} tokens and the model takes {longest}; shorten the prompt"),
            room => Ok(room),
        };
    }
    if prompt.len() > longest {
        bail!("the prompt has {} tokens and the model takes {longest}; shorten it", prompt.len());
    }
    match longest.saturating_sub(1) {
        0 => bail!("the model takes no text after the decoder's start token"),
        room => Ok(room),
    }
}

impl EncoderDecoder {
    pub(super) fn load(parts: &Parts<'_>) -> Result<Self> {
        Self::load_with(parts, Sight::of(parts.artifact)?.beginning())
    }

    /// The same with what texts begin with.
    pub(super) fn load_with(parts: &Parts<'_>, beginning: Beginning) -> Result<Self> {
        if parts.loading.prompt_chunk.is_some() {
            bail!(
                "--set prefill_chunk_size is for decoders: the encoder of this model reads a prompt as a whole; leave it out"
            );
        }
        let start_token = start_token(parts.artifact, parts.loading.decoder_start_token)?;
        let folder = parts.artifact.folder.display();
        let [encoder, decoder] = [parts.part(PartRole::Encoder)?, parts.part(PartRole::FirstStep)?];
        let reads_prompts = beginning == Beginning::Start;
        let of_text = parts.vocabulary(decoder)?;
        let vocabularies = [if reads_prompts { parts.vocabulary(encoder)? } else { of_text }, of_text];
        let prompts = [InputRole::TokenIds, InputRole::Mask].map(|role| encoder.named(role));
        let prompts = match prompts {
            _ if !reads_prompts => None,
            [ids, mask] => Some([ids?, mask?]),
        };
        if !(0..vocabularies[1]).contains(&start_token) {
            let last = vocabularies[1] - 1;
            bail!(
                "`decoder_start_token_id` {start_token} of {folder} is not in the vocabulary: ids are from 0 to {last}"
            );
        }
        let mask = encoder.input_of(InputRole::Mask).map(|input| input.value.name.clone());
        let with_past = match parts.loading.caching {
            true => Some(Self::load_with_past(parts, decoder)?),
            false => None,
        };
        Ok(Self {
            encoder: parts.session(encoder)?,
            encoder_names: EncoderNames { prompts, mask, states: encoder.given(OutputRole::HiddenStates)? },
            decoder: parts.session(decoder)?,
            decoder_names: DecoderNames::of(decoder)?,
            states: decoder.named(InputRole::EncoderStates)?,
            with_past,
            start_token,
            beginning,
            vocabularies,
            logits: Logits::of(decoder)?,
            longest: parts.longest(),
            rows: Vec::new(),
            prompts: Vec::new(),
            shown: Vec::new(),
            mask: None,
            hidden: None,
        })
    }

    fn load_with_past(parts: &Parts<'_>, first: &PartManifest) -> Result<WithPast> {
        let Some(part) = parts.find(PartRole::NextStep) else {
            let folder = parts.artifact.folder.display();
            bail!(
                "{folder} has no {}, without which each step computes all tokens again; compile the model again, or ask for \
                 that with --set use_cache=false",
                names::part(PartRole::NextStep).unwrap_or_default()
            );
        };
        let session = parts.session(part)?;
        let is_cross = |kind: CacheKind| kind == CacheKind::Encoder;
        let cache = |cross: bool| Cache::new(session.inputs(), part, first, move |kind| is_cross(kind) == cross);
        let (own, cross) = (cache(false), cache(true));
        Ok(WithPast { session, names: DecoderNames::of(part)?, own, cross })
    }

    /// Reads the whole text of each row.
    fn restart(&mut self) -> Result<Scores> {
        let ids = matrix(self.rows.len(), self.rows.concat())?;
        let mut inputs = self.decoder_names.inputs(&ids, self.mask.as_ref())?;
        inputs.push((&self.states, kept(&self.hidden)?));
        let mut outputs = self.decoder.run_values(&inputs)?;
        if let Some(with_past) = &mut self.with_past {
            with_past.own.update(&mut outputs)?;
            with_past.cross.update(&mut outputs)?;
            self.hidden = None;
        }
        Scores::last(&mut outputs, &self.logits)
    }

    /// Keeps some of the rows. What depends on the prompt alone stays where rows only change places
    /// with others of the same prompt.
    fn take_rows(&mut self, rows: &[usize]) -> Result<()> {
        self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        if let Some(with_past) = &mut self.with_past {
            with_past.own.take_rows(rows)?;
        }
        let prompts: Vec<usize> = rows.iter().map(|&row| self.prompts[row]).collect();
        if prompts == self.prompts {
            return Ok(());
        }
        self.prompts = prompts;
        for value in [&mut self.mask, &mut self.hidden].into_iter().flatten() {
            *value = value.take_rows(rows).ok_or_else(|| anyhow!("the encoder did not return the rows {rows:?}"))?;
        }
        match &mut self.with_past {
            Some(with_past) => with_past.cross.take_rows(rows),
            None => Ok(()),
        }
    }
}

/// The token that the text of an encoder-decoder begins with: `asked`, or that of the configuration of an artifact.
pub(super) fn start_token(artifact: &Artifact, asked: Option<i64>) -> Result<i64> {
    let folder = &artifact.folder;
    let start_token = match asked {
        Some(token) => Some(token),
        None => token(folder, "decoder_start_token_id")?,
    };
    start_token.with_context(|| {
        format!(
            "neither generation_config.json nor config.json of {} has `decoder_start_token_id`, which the text of an \
             encoder-decoder begins with; add it to one of them",
            folder.display()
        )
    })
}

/// Ids of prompts, padded on the right, and their mask.
fn padded(prompts: &[Vec<i64>]) -> Result<[RuntimeValue; 2]> {
    let columns = prompts.iter().map(Vec::len).max().unwrap_or(0);
    // The mask hides padding: any id does.
    let padded = |ids: &mut dyn Iterator<Item = i64>| ids.chain(std::iter::repeat(0)).take(columns).collect::<Vec<_>>();
    let ids = prompts.iter().flat_map(|prompt| padded(&mut prompt.iter().copied())).collect();
    let mask = prompts.iter().flat_map(|prompt| padded(&mut prompt.iter().map(|_| 1))).collect();
    Ok([matrix(prompts.len(), ids)?, matrix(prompts.len(), mask)?])
}

/// What the first step has made.
fn kept(value: &Option<RuntimeValue>) -> Result<&RuntimeValue> {
    value.as_ref().context("the encoder has read nothing")
}

impl LanguageModel for EncoderDecoder {
    fn vocabulary(&self) -> i64 {
        self.vocabularies[1]
    }

    fn beginning(&self, prompt: &[i64]) -> Vec<i64> {
        self.beginning.of(self.start_token, prompt)
    }

    fn room(&self, prompt: &[i64]) -> Result<usize> {
        room(prompt, self.vocabularies[0], self.longest, self.beginning, self.start_token)
    }

    fn show(&mut self, inputs: Vec<(String, Tensor)>) -> Result<()> {
        if self.encoder_names.prompts.is_some() {
            bail!("the encoder reads tokens alone");
        }
        self.shown = inputs;
        Ok(())
    }

    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        let mut outputs = match &self.encoder_names.prompts {
            Some(names) => {
                let [ids, mask] = padded(prompts)?;
                let outputs = self.encoder.run_values(&[(&names[0], &ids), (&names[1], &mask)])?;
                self.mask = Some(mask);
                outputs
            }
            None => {
                let own = std::mem::take(&mut self.shown);
                let mask = own.iter().find(|(name, _)| Some(name) == self.encoder_names.mask.as_ref());
                self.mask = mask.map(|(_, mask)| mask.clone().into());
                let shown = named(self.encoder.as_ref(), &own);
                let shown: Vec<(&str, RuntimeValue)> = shown.into_iter().map(|(name, of)| (name, of.into())).collect();
                if shown.iter().any(|(_, value)| value.shape().first() != Some(&prompts.len())) || shown.is_empty() {
                    bail!("the encoder reads one row of its inputs for each of the {} texts", prompts.len());
                }
                let inputs: Vec<(&str, &RuntimeValue)> = shown.iter().map(|(name, value)| (*name, value)).collect();
                self.encoder.run_values(&inputs)?
            }
        };
        self.hidden = Some(output(&mut outputs, &self.encoder_names.states)?);
        self.rows = prompts.iter().map(|prompt| self.beginning.of(self.start_token, prompt)).collect();
        if let Some(other) = self.rows.iter().find(|row| row.len() != self.rows[0].len()) {
            bail!(
                "the texts of a batch begin with the same number of tokens, and these with {} and {}; give such prompts apart",
                self.rows[0].len(),
                other.len()
            );
        }
        self.prompts = (0..prompts.len()).collect();
        self.restart()
    }

    fn resume(&mut self, _: &[i64]) -> Result<(Scores, usize)> {
        bail!("{HAS_NO_CONVERSATION}")
    }

    fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores> {
        if !rows.iter().copied().eq(0..self.rows.len()) {
            self.take_rows(rows)?;
        }
        self.rows.iter_mut().zip(ids).for_each(|(row, id)| row.push(*id));
        let Some(with_past) = &mut self.with_past else {
            return self.restart();
        };
        let ids = matrix(ids.len(), ids.to_vec())?;
        let WithPast { session, names, own, cross } = with_past;
        let tokens = names.inputs(&ids, self.mask.as_ref())?;
        let cached = own.inputs().chain(cross.inputs());
        let inputs: Vec<(&str, &RuntimeValue)> = tokens.into_iter().chain(cached).collect();
        let mut outputs = session.run_values(&inputs)?;
        own.update(&mut outputs)?;
        Scores::last(&mut outputs, &self.logits)
    }

    fn read(&mut self, _: &[i64]) -> Result<Scores> {
        bail!("{READS_NO_AHEAD}")
    }

    fn forget(&mut self, _: usize) -> Result<()> {
        bail!("{READS_NO_AHEAD}")
    }
}
