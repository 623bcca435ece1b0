//! `planish man`.

use anyhow::{Result, anyhow, bail};
use clap::Command;
use clap_mangen::Man;

use super::print;

/// Print the manual page of planish, or of one of its commands
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The command, e.g. compile, or bench diff
    command: Vec<String>,
    /// Print the commands that have pages, e.g. planish compile, in place of a page
    #[arg(long, conflicts_with = "command")]
    list: bool,
}

pub(super) fn run(mut planish: Command, arguments: &Arguments) -> Result<()> {
    planish.build();
    if arguments.list {
        return print(&pages(&planish, "planish").iter().map(|name| format!("{name}\n")).collect::<String>());
    }
    print(&page(&planish, &arguments.command)?)
}

/// The manual page of a command in roff; that of planish itself for no words.
fn page(planish: &Command, words: &[String]) -> Result<String> {
    let mut command = planish;
    let mut name = "planish".to_owned();
    for word in words {
        let Some(found) = command.find_subcommand(word) else {
            bail!("`{word}` is no command of {name}; `planish man --list` lists the commands");
        };
        command = found;
        // An alias has the page of its command.
        name = format!("{name}-{}", command.get_name());
    }
    let title = name.to_uppercase();
    let mut page = Vec::new();
    let source = format!("planish {}", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone().display_name(name)).title(title).source(source).manual("planish").render(&mut page)?;
    String::from_utf8(page).map_err(|_| anyhow!("the manual page is no text"))
}

/// The words of a command and of those below it, the commands that are hidden left out.
fn pages(command: &Command, name: &str) -> Vec<String> {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    let below = below.flat_map(|below| pages(below, &format!("{name} {}", below.get_name())));
    std::iter::once(name.to_owned()).chain(below).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, help};

    fn planish() -> Command {
        let mut planish = help::whole(Cli::command());
        planish.build();
        planish
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_page_has_the_options_of_its_command() {
        let planish = planish();
        let diff = page(&planish, &words("bench diff")).unwrap();
        let title = format!(".TH PLANISH-BENCH-DIFF 1  \"planish {}\" planish", env!("CARGO_PKG_VERSION"));
        assert!(diff.contains(&title) && diff.contains("planish\\-bench\\-diff \\- "), "{diff}");
        assert!(page(&planish, &words("compile")).unwrap().contains("\\-\\-calibrate"));
        // An alias has the page of its command.
        assert_eq!(page(&planish, &words("embed")).unwrap(), page(&planish, &words("predict")).unwrap());
        let error = page(&planish, &words("bench dif")).unwrap_err().to_string();
        assert_eq!(error, "`dif` is no command of planish-bench; `planish man --list` lists the commands");
    }

    #[test]
    fn hidden_commands_have_no_page() {
        let names = pages(&planish(), "planish");
        for name in ["planish", "planish compile", "planish bench diff", "planish man"] {
            assert!(names.iter().any(|n| n == name), "{name} is not in {names:?}");
        }
        assert!(names.iter().all(|name| !name.contains("worker") && !name.contains("help")), "{names:?}");
    }
}
