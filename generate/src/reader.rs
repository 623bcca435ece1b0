//! From texts to token ids, and from new ids to texts.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_data::tokenizer::TextTokenizer;
use planish_runtimes::ort::use_huge_pages;

use super::chat::CallForm;
use super::encoder_decoder::start_token;
use super::images::{self, Sight};
use super::lines::{Content, Line};
use super::places::Places;
use super::stream::{TextStream, first_end};
use super::{
    Chat, Continuation, GenerateOptions, Generated, LanguageModel, Length, Message, OnPiece, Piece, Request,
    SearchOptions, Stop, search_each,
};

/// So many new tokens are worth huge pages: each takes less time, and making the pages takes that of about a hundred.
const MANY: usize = 256;

/// A line that has become a row of a batch.
pub(super) struct Row {
    pub(super) request: Request,
    /// Whether its ids have a text.
    pub(super) is_text: bool,
    /// Whether the model was told of tools, if there are some.
    pub(super) may_call: bool,
    /// Strings that stop its text.
    pub(super) ends: Vec<String>,
    /// Files of images that it comes with.
    pub(super) images: Vec<PathBuf>,
    /// The number of tokens that its text begins with, where rows of a batch need the same.
    pub(super) unpadded: Option<usize>,
}

/// The tokenizer and the chat template of an artifact, read when they are needed.
pub(super) struct Reader<'a> {
    artifact: &'a Artifact,
    options: &'a GenerateOptions,
    tokenizer: Option<TextTokenizer>,
    chat: Option<Chat>,
    /// How the model writes calls of tools, where it has some.
    form: Option<CallForm>,
    /// What the model reads besides tokens; known from the first row on.
    sight: Option<Sight>,
    /// The places of images in prompts, where these have some.
    places: Option<Places>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(artifact: &'a Artifact, options: &'a GenerateOptions) -> Self {
        Self { artifact, options, tokenizer: None, chat: None, form: None, sight: None, places: None }
    }

    /// The ids of a line, which is the `number`-th of all, and its settings.
    ///
    /// # Errors
    /// When the artifact has no tokenizer or chat template that it needs, one of them fails, or a setting does not fit it.
    pub(super) fn row(&mut self, line: &Line, searched: &SearchOptions, number: usize) -> Result<Row> {
        let folder = &self.artifact.folder;
        let sight = match self.sight {
            Some(sight) => sight,
            None => *self.sight.insert(Sight::of(self.artifact)?),
        };
        let images = line.images.as_ref().unwrap_or(&self.options.images).clone();
        sight.check(images.len())?;
        if sight == Sight::Places && self.places.is_none() {
            self.places = Some(Places::read(self.artifact)?);
        }
        if self.tokenizer.is_none() && !matches!(line.content, Content::Ids(_)) {
            self.tokenizer = Some(TextTokenizer::open(folder)?);
        }
        if self.chat.is_none() && matches!(line.content, Content::Messages(_)) {
            let chat = Chat::open(folder, self.options.tools.clone())?;
            self.form = self.tokenizer.as_ref().map(|tokenizer| chat.call_form(tokenizer)).transpose()?.flatten();
            self.chat = Some(chat);
        }
        let (tokenizer, chat) = (self.tokenizer.as_ref(), self.chat.as_ref());
        let ids = match (&line.content, tokenizer, chat) {
            (Content::Ids(ids), ..) => {
                self.places.as_ref().map(|places| places.check(ids, self.artifact, &images)).transpose()?;
                ids.clone()
            }
            (Content::Text(text), Some(tokenizer), _) => match &self.places {
                Some(places) => {
                    let text = places.fill(text, self.artifact, &images, tokenizer)?;
                    tokenizer.encode(&text, places.are_whole_texts())?
                }
                // A text goes on after what it begins with, which has no token that ends it.
                None => tokenizer.encode(text, sight != Sight::Blind)?,
            },
            (Content::Messages(messages), Some(tokenizer), Some(chat)) => match &self.places {
                Some(places) => {
                    let listed = Message::with_images(messages, images.len())?;
                    let text = chat.conversation(&listed)?;
                    tokenizer.encode(&places.fill(&text, self.artifact, &images, tokenizer)?, true)?
                }
                None => tokenizer.encode(&chat.conversation(messages)?, true)?,
            },
            _ => bail!("{} has no tokenizer", folder.display()),
        };
        let ends = line.stop.as_ref().unwrap_or(&self.options.config.stop_strings).clone();
        let is_text = !matches!(line.content, Content::Ids(_));
        let may_call = matches!(line.content, Content::Messages(_));
        if !is_text && line.stop.is_some() && !ends.is_empty() {
            bail!("`stop` is for texts, and this prompt is token ids; leave `stop` out");
        }
        if !is_text && !ends.is_empty() {
            bail!(
                "prompts of token ids have no text that could end with a string of stop_strings; give a text, or no strings: \
                 leave out --stop, or generation_config.json with --set generation_config=false, or say \"stop\": [] in a line of --prompts"
            );
        }
        let first = (number as u64).wrapping_mul(searched.continuations.get() as u64);
        let seed = line.seed.unwrap_or(searched.seed.wrapping_add(first));
        let length = line.max_new_tokens.map_or(searched.length, Length::New);
        let unpadded = match sight {
            Sight::Encoder(beginning) => {
                Some(beginning.of(start_token(self.artifact, self.options.config.decoder_start_token)?, &ids).len())
            }
            Sight::Blind | Sight::Places => None,
        };
        Ok(Row { request: Request { ids, length, seed }, is_text, may_call, ends, images, unpadded })
    }

    /// Continues the prompts of a batch.
    ///
    /// # Errors
    /// When the model or the tokenizer fails, or `on_piece` does.
    pub(super) fn generate(
        &self,
        model: &mut dyn LanguageModel,
        rows: &[Row],
        searched: &SearchOptions,
        mut on_piece: Option<OnPiece<'_>>,
    ) -> Result<Generated> {
        let repeats = searched.continuations.get();
        let tokenizer = self.tokenizer.as_ref();
        let of_row = |row: &'_ Row| tokenizer.filter(|_| row.is_text);
        let mut streams: Vec<Option<TextStream<'_>>> = Vec::new();
        for row in rows {
            streams.extend((0..repeats).map(|_| of_row(row).map(|tokenizer| TextStream::new(tokenizer, &row.ends))));
        }
        let many = |row: &Row| matches!(row.request.length, Length::New(tokens) if tokens.get() >= MANY);
        let mut is_first = rows.iter().any(many);
        let mut told = |continuation: usize, id: i64| {
            if std::mem::take(&mut is_first) {
                use_huge_pages();
            }
            let pushed = streams[continuation].as_mut().map(|stream| stream.push(id)).transpose()?;
            let (text, flow) = pushed.unwrap_or((String::new(), ControlFlow::Continue(())));
            let asked = match &mut on_piece {
                Some(on_piece) => on_piece(Piece { continuation, id: Some(id), text: &text })?,
                None => ControlFlow::Continue(()),
            };
            Ok(if asked.is_break() && flow.is_continue() { ControlFlow::Break(Stop::Interrupted) } else { flow })
        };
        let has_end = |row: usize, ids: &[i64]| {
            let Some(tokenizer) = of_row(&rows[row]).filter(|_| !rows[row].ends.is_empty()) else { return Ok(false) };
            Ok(first_end(&tokenizer.decode(ids)?, &rows[row].ends).is_some())
        };
        let images: Vec<PathBuf> = rows.iter().flat_map(|row| row.images.iter().cloned()).collect();
        let start = Instant::now();
        if !images.is_empty() {
            model.show(images::inputs(self.artifact, &images)?)?;
        }
        let shown = start.elapsed();
        let requests: Vec<Request> = rows.iter().map(|row| row.request.clone()).collect();
        let mut generated = search_each(model, &requests, searched, &mut told, Some(&has_end))?;
        generated.first_token += shown;
        generated.total += shown;
        for (continuation, (found, stream)) in generated.continuations.iter_mut().zip(streams).enumerate() {
            let Some(stream) = stream else { continue };
            let tokenizer = tokenizer.context("a text has no tokenizer")?;
            let (text, rest) = stream.finish(tokenizer.decode(&found.ids)?);
            if let Some(on_piece) = on_piece.as_mut().filter(|_| !rest.is_empty()) {
                let _ = on_piece(Piece { continuation, id: None, text: &rest })?;
            }
            found.text = Some(text);
            let row = &rows[continuation / repeats];
            if let Some(form) = self.form.filter(|_| row.may_call) {
                find_calls(found, form, tokenizer, &row.ends)?;
            }
        }
        Ok(generated)
    }
}

/// Takes the calls of tools out of the text of a continuation.
///
/// # Errors
/// When the tokenizer fails.
pub(super) fn find_calls(
    continuation: &mut Continuation,
    form: CallForm,
    tokenizer: &TextTokenizer,
    ends: &[String],
) -> Result<()> {
    // Marks of calls may be special tokens.
    let (mut whole, special) = tokenizer.decode_whole(&continuation.ids)?;
    if let Some(end) = first_end(&whole, ends) {
        whole.truncate(end);
    }
    if let Some((mut said, calls)) = form.parse(&whole) {
        for token in special.iter().filter(|token| !token.is_empty()) {
            said = said.replace(token.as_str(), "");
        }
        continuation.text = Some(said.trim().to_owned());
        continuation.calls = calls;
    }
    Ok(())
}
