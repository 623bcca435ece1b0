//! What a person sees while engines are built.

use std::collections::BTreeMap;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressStyle};
use planish_compiler::engine::EngineObserver;

use crate::cli::terminal::bars;
use crate::cli::warn;

/// Warnings and the builder's phases for a person; nothing of the phases in a pipe.
pub(in crate::cli) struct EngineConsole {
    bar: ProgressBar,
    /// How phases with steps are drawn, and what has none.
    styles: [ProgressStyle; 2],
    /// The phases in progress, from outer to inner ones, with their numbers of steps.
    phases: Mutex<Phases>,
}

#[derive(Default)]
struct Phases {
    part: String,
    running: Vec<String>,
    steps: BTreeMap<String, u32>,
}

impl Phases {
    /// The steps of the innermost phase; 0 where there is none.
    fn length(&self) -> u32 {
        self.running.last().and_then(|phase| self.steps.get(phase)).copied().unwrap_or(0)
    }

    fn message(&self) -> String {
        let Self { part, running, steps } = self;
        match running.last() {
            Some(phase) => format!("building the engine of {part}: {phase}"),
            None if steps.is_empty() => format!("building the engine of {part}: reading the ONNX file"),
            None => format!("building the engine of {part}"),
        }
    }
}

impl EngineConsole {
    pub(in crate::cli) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        let style = |template| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let styles = [style("{msg} {bar:30} {pos}/{len}, {elapsed}"), style("{msg}, {elapsed}")];
        Self { bar, styles, phases: Mutex::default() }
    }

    fn with(&self, change: impl FnOnce(&mut Phases)) {
        let mut phases = self.phases.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut phases);
        let steps = phases.length();
        // Before what draws.
        self.bar.set_style(self.styles[usize::from(steps == 0)].clone());
        self.bar.set_message(phases.message());
        self.bar.set_length(steps.into());
    }
}

impl EngineObserver for EngineConsole {
    fn warning(&self, text: &str) {
        self.bar.suspend(|| warn(text));
    }

    fn begin_part(&self, part: &str) {
        self.with(|phases| *phases = Phases { part: part.to_owned(), ..Phases::default() });
        // The bar of the part before is finished, and draws nothing more.
        self.bar.reset();
    }

    fn begin_phase(&self, phase: &str, _: Option<&str>, steps: u32) {
        self.bar.set_position(0);
        self.with(|phases| {
            phases.running.push(phase.to_owned());
            phases.steps.insert(phase.to_owned(), steps);
        });
    }

    fn step(&self, phase: &str, step: u32) {
        self.with(|phases| {
            if phases.running.last().is_some_and(|last| last == phase) {
                self.bar.set_position(step.into());
            }
        });
    }

    fn end_phase(&self, phase: &str) {
        self.with(|phases| phases.running.retain(|other| other != phase));
    }

    fn end_part(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_have_texts_and_steps() {
        let mut phases = Phases { part: "model".to_owned(), ..Phases::default() };
        assert_eq!(
            (phases.message().as_str(), phases.length()),
            ("building the engine of model: reading the ONNX file", 0)
        );
        phases.running.push("Building".to_owned());
        phases.steps.insert("Building".to_owned(), 7);
        assert_eq!((phases.message().as_str(), phases.length()), ("building the engine of model: Building", 7));
        phases.running.clear();
        assert_eq!((phases.message().as_str(), phases.length()), ("building the engine of model", 0));
    }
}
