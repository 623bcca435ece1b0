//! How a model of the hub is named: `OWNER/NAME`, then perhaps a file, and `@REVISION`.

/// The revision of a name that has none.
pub(crate) const MAIN: &str = "main";

/// Where the pages of models are.
pub(crate) const ADDRESSES: [&str; 3] = ["https://huggingface.co/", "https://hf.co/", "https://www.huggingface.co/"];

/// Endings of files: what has one of them and a folder before it is a path.
pub(crate) const ENDINGS: [&str; 9] =
    [".safetensors", ".json", ".onnx", ".gguf", ".bin", ".pt", ".pth", ".h5", ".engine"];

/// The longest name that the hub allows, in bytes.
const LONGEST: usize = 96;

/// A model of the hub, or one file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// `OWNER/NAME`.
    pub repository: String,
    /// The file that was named, by its path in the repository.
    pub file: Option<String>,
    /// A branch, a tag or a commit.
    pub revision: Option<String>,
}

impl HubName {
    /// Reads `OWNER/NAME` or `OWNER/NAME/FILE`, either with `@REVISION`, or the address of a page of the hub. Gives `None` for other texts, such as
    /// most paths of files.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(path) = ADDRESSES.iter().find_map(|address| text.strip_prefix(address)) {
            return Self::of_page(path);
        }
        let (path, revision) = match text.split_once('@') {
            Some((path, revision)) => (path, Some(revision)),
            None => (text, None),
        };
        if revision.is_some_and(|revision| !is_revision(revision)) {
            return None;
        }
        let mut parts = path.splitn(3, '/');
        let (owner, name, file) = (parts.next()?, parts.next()?, parts.next());
        let is_name = is_identifier(owner) && is_identifier(name) && owner.len() + name.len() < LONGEST;
        let is_path = file.is_none() && ENDINGS.iter().any(|ending| name.to_ascii_lowercase().ends_with(ending));
        if !is_name || is_path || file.is_some_and(|file| !is_file(file)) {
            return None;
        }
        let (file, revision) = (file.map(str::to_owned), revision.map(str::to_owned));
        Some(Self { repository: format!("{owner}/{name}"), file, revision })
    }

    /// Reads the path of a page: `OWNER/NAME`, and `tree/REVISION` or `blob/REVISION/FILE` after it.
    fn of_page(path: &str) -> Option<Self> {
        let path = decoded(path.split(['?', '#']).next().unwrap_or(path))?;
        let path = path.trim_end_matches('/');
        let parts: Vec<&str> = path.splitn(5, '/').collect();
        match parts.as_slice() {
            ["datasets" | "spaces", ..] => None,
            [owner, name] => Self::parse(&format!("{owner}/{name}")),
            [owner, name, "tree", revision] => Self::parse(&format!("{owner}/{name}@{revision}")),
            [owner, name, "blob" | "resolve", revision, file] => {
                Self::parse(&format!("{owner}/{name}/{file}@{revision}"))
            }
            _ => None,
        }
    }

    /// The revision, or that which stands for none.
    #[must_use]
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }
}

/// A text with the characters that `%20` and the like stand for; `None` where they are no text.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Whether a text is an owner or the name of a model: letters, digits, and `-`, `_` and `.` inside, none of the latter twice.
fn is_identifier(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let inside = |c: char| matches!(c, '-' | '.');
    let ends = text.starts_with(inside) || text.ends_with(inside);
    !text.is_empty() && text.chars().all(allowed) && !ends && !text.contains("..") && !text.contains("--")
}

/// Whether a text is a branch, a tag or a commit whose name is a path below a folder, such as `main` or `refs/pr/1`.
pub(crate) fn is_revision(text: &str) -> bool {
    is_file(text) && !text.contains(['?', '#', '%', ' ', '*', '~', '^', ':', '['])
}

/// Whether a text is the path of a file below a folder.
pub(crate) fn is_file(text: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    text.split('/').all(is_part) && !text.contains(['\\', '\0']) && !text.chars().any(char::is_control)
}

/// Whether a revision is a whole commit, whose files never change.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_an_owner_and_perhaps_a_file_and_a_revision() {
        let name = HubName::parse("sentence-transformers/all-MiniLM-L6-v2").unwrap();
        assert_eq!(name.repository, "sentence-transformers/all-MiniLM-L6-v2");
        assert_eq!((name.file.clone(), name.revision()), (None, "main"));
        let name = HubName::parse("Qwen/Qwen3-0.6B-GGUF/sub/q8_0.gguf@refs/pr/1").unwrap();
        assert_eq!(name.repository, "Qwen/Qwen3-0.6B-GGUF");
        assert_eq!((name.file.as_deref(), name.revision()), (Some("sub/q8_0.gguf"), "refs/pr/1"));
    }

    #[test]
    fn pages_of_the_hub_are_names() {
        let of = |page: &str| HubName::parse(&format!("https://huggingface.co/{page}"));
        assert_eq!(of("a/b/"), HubName::parse("a/b"));
        assert_eq!(of("a/b/tree/v1.0"), HubName::parse("a/b@v1.0"));
        assert_eq!(of("a/b/blob/main/x/y.gguf?download=true"), HubName::parse("a/b/x/y.gguf@main"));
        assert_eq!(of("a/b/blob/main/x%20y.gguf").unwrap().file.as_deref(), Some("x y.gguf"));
        for bad in ["a/b/blob/main/x%2", "a/b/blob/main/x%zz", "a/b/blob/main/%ff", "a/b/blob/main/..%2fx"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_are_no_names() {
        let paths = [
            "",
            "gpt2",
            "./a/b",
            "../a/b",
            "/a/b",
            "~/a",
            "a//b",
            "a/b/",
            "a/b/../c",
            "a/..",
            "a/b@",
            "a/b@../x",
            "a b/c",
            "a/b--c",
            "https://elsewhere.co/a/b",
            "https://huggingface.co/datasets/a/b",
            "a/model.onnx",
            "a/.b",
            "a\\b/c",
            "a/b/c\\d",
            "a/b@x y",
        ];
        for path in paths {
            assert_eq!(HubName::parse(path), None, "{path}");
        }
        assert_eq!(HubName::parse(&format!("{}/{}", "a".repeat(60), "b".repeat(60))), None);
    }
}
