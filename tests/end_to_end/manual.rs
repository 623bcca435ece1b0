//! The manual, docs/cli.md, has the help of each command.

use std::collections::BTreeMap;
use std::fs;

use crate::support::{planish, repository};

/// What brings the manual up to date.
const UPDATE: &str = "cargo build --release && python3 tools/cli_reference.py target/release/planish";

/// The sections of the manual by command, without their fences; planish itself has the empty name.
fn sections(page: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    for part in page.split("<!-- help").skip(1) {
        let (mark, text) = part.split_once("-->").expect("a mark is closed");
        if let Some(command) = mark.trim().strip_suffix(": begin") {
            let text = text.trim().trim_start_matches("```text").trim_end_matches("```");
            let previous = sections.insert(command.to_owned(), text.to_owned());
            assert!(previous.is_none(), "docs/cli.md has two sections for `{command}`");
        }
    }
    sections
}

/// The commands that the help of planish, or of a command, lists. With a long help, descriptions are below the names and
/// further in.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}

/// The help of planish (the empty name), of each command, and of the commands of these.
fn helps() -> Vec<(String, String)> {
    let help = |command: &str| planish(command.split_whitespace().chain(["--help"])).succeeds().stdout;
    let mut helps = vec![(String::new(), help(""))];
    for command in commands(&helps[0].1) {
        let own = help(&command);
        let nested = commands(&own).into_iter().map(|name| format!("{command} {name}"));
        let nested: Vec<(String, String)> = nested.map(|name| (name.clone(), help(&name))).collect();
        helps.push((command, own));
        helps.extend(nested);
    }
    helps
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn the_manual_has_the_help_of_each_command() {
    let page = fs::read_to_string(repository().join("docs/cli.md")).unwrap();
    let mut sections = sections(&page);
    for (command, help) in helps() {
        let section = sections.remove(&command).unwrap_or_else(|| {
            panic!(
                "docs/cli.md has no section for `{command}`: add its two marks (tools/cli_reference.py), then {UPDATE}"
            )
        });
        // The manual wraps lines at its own width.
        let (expected, found) = (words(&help), words(&section));
        let at = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
        let around =
            |words: &[&str]| words.iter().skip(at.saturating_sub(5)).take(12).copied().collect::<Vec<_>>().join(" ");
        assert!(
            expected == found,
            "docs/cli.md is not what `planish {command} --help` prints:\n  the manual: ... {}\n  the help:   ... {}\nupdate it: {UPDATE}",
            around(&found),
            around(&expected),
        );
    }
    let unknown: Vec<&String> = sections.keys().collect();
    assert!(unknown.is_empty(), "docs/cli.md has sections for commands that are not there: {unknown:?}");
}
