//! What the pages of HTML share that planish writes: their head, their style, and how templates are read. A page is one file, which
//! needs no other file and no network.

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error};

/// The style of all pages, for light and dark, screens and paper.
pub(crate) const STYLE: &str = include_str!("style.css");

/// The classes of colours for kinds of things: `o0`, ...
pub(crate) const KINDS: usize = 8;

/// Templates of a page: its own, and `head.html`, which takes `title`, `command`, `style` and `policy`.
///
/// # Errors
/// When a template is malformed.
pub(crate) fn environment<'a>(templates: &[(&'a str, &'a str)]) -> Result<Environment<'a>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("head.html", include_str!("head.html"))?;
    for (name, template) in templates {
        environment.add_template(name, template)?;
    }
    Ok(environment)
}
