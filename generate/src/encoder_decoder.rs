//! An encoder-decoder on a runtime: what the encoder made of prompts, and the decoder's caches.

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::manifest::PartManifest;
use planish_data::tokenizer::token;
use planish_ir::interface::CacheKind;
use planish_ir::{InputRole, OutputRole, PartRole};
use planish_models::names;
use planish_runtimes::{RuntimeValue, Session};

use super::cache::Cache;
use super::model::{LanguageModel, Logits, Parts, Scores, check_prompt, matrix, output};

/// Why several tokens are not read in one run.
pub(super) const READS_NO_AHEAD: &str =
    "--set prompt_lookup_num_tokens is for decoders, and this is an encoder-decoder; leave it out";

/// Why there is no conversation.
pub(super) const HAS_NO_CONVERSATION: &str =
    "a conversation is for decoders, and this is an encoder-decoder, which answers one prompt; give it with --prompt";

/// An encoder-decoder: the encoder reads the prompts, padded on the right, once; the text begins with
/// the decoder's start token.
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
    /// Of the prompts, then of the texts: ids are from 0 to below these.
    vocabularies: [i64; 2],
    logits: Logits,
    /// The longest prompt and the longest text.
    longest: usize,
    /// The text of each row, all of the same length.
    rows: Vec<Vec<i64>>,
    /// The prompt of each row.
    prompts: Vec<usize>,
    /// The mask of the prompt of each row.
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
    ids: String,
    mask: String,
    states: String,
}

/// The names of what a decoder takes besides a cache.
struct DecoderNames {
    ids: String,
    mask: String,
}

impl DecoderNames {
    fn of(part: &PartManifest) -> Result<Self> {
        Ok(Self { ids: part.named(InputRole::DecoderTokenIds)?, mask: part.named(InputRole::EncoderMask)? })
    }
}

/// How many tokens may follow the start token for a prompt of an encoder with so many ids, of texts that are this long
/// at most.
pub(super) fn room(prompt: &[i64], vocabulary: i64, longest: usize) -> Result<usize> {
    check_prompt(prompt, vocabulary)?;
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
        if parts.loading.prompt_chunk.is_some() {
            bail!(
                "--set prefill_chunk_size is for decoders: the encoder of this model reads a prompt as a whole; leave it out"
            );
        }
        let folder = &parts.artifact.folder;
        let start_token = match parts.loading.decoder_start_token {
            Some(token) => Some(token),
            None => token(folder, "decoder_start_token_id")?,
        };
        let folder = folder.display();
        let start_token = start_token.with_context(|| {
            format!(
                "neither generation_config.json nor config.json of {folder} has `decoder_start_token_id`, which the \
                 text of an encoder-decoder begins with; add it to one of them"
            )
        })?;
        let [encoder, decoder] = [parts.part(PartRole::Encoder)?, parts.part(PartRole::FirstStep)?];
        let vocabularies = [parts.vocabulary(encoder)?, parts.vocabulary(decoder)?];
        if !(0..vocabularies[1]).contains(&start_token) {
            let last = vocabularies[1] - 1;
            bail!(
                "`decoder_start_token_id` {start_token} of {folder} is not in the vocabulary: ids are from 0 to {last}"
            );
        }
        let with_past = match parts.loading.caching {
            true => Some(Self::load_with_past(parts, decoder)?),
            false => None,
        };
        Ok(Self {
            encoder: parts.session(encoder)?,
            encoder_names: EncoderNames {
                ids: encoder.named(InputRole::TokenIds)?,
                mask: encoder.named(InputRole::Mask)?,
                states: encoder.given(OutputRole::HiddenStates)?,
            },
            decoder: parts.session(decoder)?,
            decoder_names: DecoderNames::of(decoder)?,
            states: decoder.named(InputRole::EncoderStates)?,
            with_past,
            start_token,
            vocabularies,
            logits: Logits::of(decoder)?,
            longest: parts.longest(),
            rows: Vec::new(),
            prompts: Vec::new(),
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
        let (mask, hidden) = (kept(&self.mask)?, kept(&self.hidden)?);
        let DecoderNames { ids: ids_name, mask: mask_name } = &self.decoder_names;
        let inputs = [(ids_name.as_str(), &ids), (mask_name.as_str(), mask), (self.states.as_str(), hidden)];
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

/// What the first step has made.
fn kept(value: &Option<RuntimeValue>) -> Result<&RuntimeValue> {
    value.as_ref().context("the encoder has read no prompts")
}

impl LanguageModel for EncoderDecoder {
    fn vocabulary(&self) -> i64 {
        self.vocabularies[1]
    }

    fn beginning(&self, _: &[i64]) -> Vec<i64> {
        vec![self.start_token]
    }

    fn room(&self, prompt: &[i64]) -> Result<usize> {
        room(prompt, self.vocabularies[0], self.longest)
    }

    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        let columns = prompts.iter().map(Vec::len).max().unwrap_or(0);
        // The mask hides padding: any id does.
        let padded =
            |ids: &mut dyn Iterator<Item = i64>| ids.chain(std::iter::repeat(0)).take(columns).collect::<Vec<_>>();
        let ids = prompts.iter().flat_map(|prompt| padded(&mut prompt.iter().copied())).collect();
        let mask = prompts.iter().flat_map(|prompt| padded(&mut prompt.iter().map(|_| 1))).collect();
        let (ids, mask) = (matrix(prompts.len(), ids)?, matrix(prompts.len(), mask)?);
        let mut outputs =
            self.encoder.run_values(&[(&self.encoder_names.ids, &ids), (&self.encoder_names.mask, &mask)])?;
        self.hidden = Some(output(&mut outputs, &self.encoder_names.states)?);
        self.mask = Some(mask);
        self.rows = vec![vec![self.start_token]; prompts.len()];
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
        let tokens = [(names.ids.as_str(), &ids), (names.mask.as_str(), kept(&self.mask)?)];
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
