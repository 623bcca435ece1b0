//! `planish generate --prompts`: lines of JSON in, and lines of JSON out.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_files::Kind;
use planish_generate::{BatchBound, Content, Done, FileLine, GenerateOptions, Line, generate_lines, read_lines};
use serde_json::{Value, json};

use super::generate::members;
use super::terminal::{print_lines, progress};
use super::typed::read_all;

/// The prompts of a batch where nothing says how many.
const ROWS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// The most tokens of the prompts of a batch: their keys and values are in memory together.
const TOKENS: usize = 1 << 14;

/// What standard input is called.
const TYPED: &str = "standard input";

/// Continues the prompts of a file, and prints a line for each as soon as its batch has ended.
pub(super) fn run(
    artifact: &Artifact,
    file: &Path,
    options: &GenerateOptions,
    is_chat: bool,
    rows: Option<NonZeroUsize>,
) -> Result<()> {
    let (name, text) = match file == Path::new("-") {
        true => (TYPED.to_owned(), read_all(&Kind::PROMPTS)?),
        false => (file.display().to_string(), planish_files::read_text(file, &Kind::PROMPTS)?),
    };
    let mut read = read_lines(&name, &text, is_chat, options)?;
    if let Some(folder) = file.parent() {
        let images = read.iter_mut().filter_map(|read| read.line.images.as_mut()).flatten();
        images.for_each(|image| *image = folder.join(&*image));
    }
    drop(text);
    if read.is_empty() {
        bail!("{name} has no prompts");
    }
    if options.tools.is_some() && !read.iter().any(|read| matches!(read.line.content, Content::Messages(_))) {
        bail!("--tools is for the chat template, which no line of {name} uses; add --chat, or give `messages`");
    }
    let (named, lines): (Vec<Named>, Vec<Line>) =
        read.into_iter().map(|FileLine { number, id, line }| (Named { number, id }, line)).unzip();
    let bound = BatchBound { rows: rows.unwrap_or(ROWS), tokens: TOKENS };
    let place = |line: usize| format!("{name}, line {}", named[line].number);
    let (start, mut tokens) = (Instant::now(), 0);
    let mut on_done = |done: Done| {
        tokens += done.continuations.iter().map(|continuation| continuation.ids.len()).sum::<usize>();
        print_lines(&format!("{}\n", document(named[done.line].id.as_ref(), &done, options.tools.is_some())))
    };
    generate_lines(artifact, &lines, options, bound, &place, &mut on_done)?;
    let seconds = start.elapsed().as_secs_f64();
    progress(&format!("{} prompts, {tokens} tokens in {seconds:.2} s with loading", lines.len()));
    Ok(())
}

/// What is left of a line that was read.
struct Named {
    number: usize,
    id: Option<Value>,
}

/// What became of a line.
fn document(id: Option<&Value>, done: &Done, has_tools: bool) -> Value {
    let mut document = members(&done.continuations, has_tools);
    if let Some(id) = id {
        document.insert("id".to_owned(), id.clone());
    }
    let (stops, counts): (Vec<&str>, Vec<usize>) =
        done.continuations.iter().map(|one| (one.stop.name(), one.ids.len())).unzip();
    let of_one = done.continuations.len() == 1;
    document.insert("stop".to_owned(), if of_one { json!(stops[0]) } else { json!(stops) });
    document.insert("prompt_tokens".to_owned(), json!(done.prompt_tokens));
    document.insert("new_tokens".to_owned(), if of_one { json!(counts[0]) } else { json!(counts) });
    Value::Object(document)
}
