//! The conversation of `planish generate --chat`.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_generate::{Conversation, GenerateOptions, Message, Piece, Stop};
use serde_json::Value;

use super::generate::{document, line, show, speed_text};
use super::terminal::{print_made, progress};
use super::typed::read_line;
use super::{note, print, print_json, signals};

/// How many tokens an answer gets at most where nothing says it.
const ANSWER: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// What a person sees where a message is expected.
const SIGN: &str = "> ";

/// The results of tools that a line gives, if it does: a message with the role of a tool, or a list of them.
fn results(text: &str) -> Option<Vec<Message>> {
    let messages = match serde_json::from_str(text).ok()? {
        Value::Array(messages) => messages,
        message => vec![message],
    };
    let results: Vec<Message> = messages.iter().map(Message::parse).collect::<Result<_>>().ok()?;
    (!results.is_empty() && results.iter().all(|result| result.role() == "tool")).then_some(results)
}

/// Answers lines of standard input until it ends.
pub(super) fn converse(artifact: &Artifact, mut options: GenerateOptions, json: bool) -> Result<()> {
    let config = &mut options.config;
    if config.max_new_tokens.is_none() && config.max_length.is_none() {
        config.max_new_tokens = Some(ANSWER);
    }
    let mut conversation = Conversation::open(artifact, &options)?;
    let has_tools = options.tools.is_some();
    let is_person = stdin().is_terminal();
    let tell = |text: &str| {
        if is_person {
            // Standard error may be closed; the answers are what counts.
            let _ = write!(stderr(), "{text}");
        }
    };
    loop {
        tell(SIGN);
        let Some(message) = read_line()? else { break };
        if message.trim().is_empty() {
            continue;
        }
        // The first Ctrl-C stops the answer, another one before it has stopped ends the command.
        signals::finish_at_interrupt();
        let mut on_piece = |piece: Piece<'_>| {
            // Calls are known when all of a text is there.
            if !json && !has_tools {
                show(piece.text)?;
            }
            Ok(if signals::asked_to_finish() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let results = has_tools.then(|| results(&message)).flatten();
        let messages = results.unwrap_or_else(|| vec![Message::user(&message)]);
        let answer = conversation.answer_all(messages, &mut on_piece)?;
        signals::end_at_interrupt();
        if answer.left_out > 0 {
            note(&format!(
                "the {} oldest messages are left out from now on, because the model does not take all of the conversation",
                answer.left_out
            ));
        }
        if json {
            print_json(&document(&answer.generated, has_tools))?;
            continue;
        }
        match has_tools {
            true => print_made(&answer.generated.continuations.iter().map(line).collect::<String>())?,
            false => print("\n")?,
        }
        if is_person {
            progress(&speed_text(&answer.generated));
        }
        match answer.generated.continuations.first().map(|continuation| continuation.stop) {
            Some(Stop::MaxNewTokens) => tell("the answer is as long as --max-new-tokens allows\n"),
            Some(Stop::Context) => note("the answer stopped, because the conversation is as long as the model takes"),
            _ => {}
        }
    }
    tell("\n");
    Ok(())
}
