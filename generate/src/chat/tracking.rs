//! The block `{% generation %}` of chat templates, which marks what an assistant said for training.

/// A template in which each block `generation` is a block `with`: it renders the same and has a scope of its own too.
pub(super) fn as_scopes(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    let mut is_raw = false;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (tag, after) = rest.split_at(length(rest, is_raw));
        match name(tag) {
            "raw" => is_raw = true,
            "endraw" => is_raw = false,
            _ => {}
        }
        match name(tag) {
            "generation" | "endgeneration" if !is_raw => out.push_str(&tag.replacen("generation", "with", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The word that is all of a block's tag; empty where it is another tag or has more in it.
fn name(tag: &str) -> &str {
    let inside = tag.strip_prefix("{%").and_then(|tag| tag.strip_suffix("%}"));
    inside.map_or("", |inside| inside.trim_matches(['-', '+']).trim())
}

/// The length in bytes of the tag that a text begins with; 1 where it begins with a brace that is none.
fn length(text: &str, is_raw: bool) -> usize {
    let ends_at = |end: &str| text.find(end).map_or(text.len(), |at| at + end.len());
    match text.as_bytes().get(1) {
        Some(b'%') if !is_raw => code_length(text, "%}"),
        // In raw text only the tag that ends it counts.
        Some(b'%') if name(&text[..ends_at("%}")]) == "endraw" => ends_at("%}"),
        Some(b'{') if !is_raw => code_length(text, "}}"),
        Some(b'#') if !is_raw => ends_at("#}"),
        _ => 1,
    }
}

/// The length of a tag of code, in which strings and brackets may hold what ends tags.
fn code_length(text: &str, end: &str) -> usize {
    let (mut quote, mut depth, mut is_escaped) = (None, 0usize, false);
    for (at, c) in text.char_indices().skip(2) {
        match quote {
            Some(_) if is_escaped => is_escaped = false,
            Some(_) if c == '\\' => is_escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if depth == 0 && text[at..].starts_with(end) => return at + end.len(),
            None => match c {
                '\'' | '"' => quote = Some(c),
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            },
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_generation_become_scopes() {
        let template = "{ {%- generation -%} {{ '{% generation %}' }}{%endgeneration%}{%+ generation %}";
        assert_eq!(as_scopes(template), "{ {%- with -%} {{ '{% generation %}' }}{%endwith%}{%+ with %}");
    }

    #[test]
    fn all_else_stays() {
        for template in [
            "{# {% generation %} #}",
            "{% raw %}{% generation %}{{ '{% endraw %}x",
            "{% set generation = {'a': {'%}': 1}} %}{{ generation }}",
            "{% set x = \"\\\"{% generation %}\" %}",
            "{{ {'a': {'b': '}} {% generation %}'}}['a'] }}",
            "{% generation of more %}",
            "{% generation",
            "{{",
            "{",
        ] {
            assert_eq!(as_scopes(template), template);
        }
        let raw = "{% raw %}{% generation %}{% endraw %}{% generation %}";
        assert_eq!(as_scopes(raw), "{% raw %}{% generation %}{% endraw %}{% with %}");
    }
}
