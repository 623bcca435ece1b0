//! docs/ir.md has a grammar and a table of operators that are made of the code, and says of all that the code has what it is.

#![allow(clippy::disallowed_methods)]

use planish_ir::ops::{Field, RESULT};
use planish_ir::text::{Form, grammar};
use planish_ir::weight::{GgmlBlock, Search};
use planish_ir::{DType, Op};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ir.md");

/// The page in front of a part that is made of the code, the part, and the page after it.
fn cut<'a>(page: &'a str, part: &str) -> [&'a str; 3] {
    let (begin, end) = (format!("<!-- {part}: made by ir/tests/ir/docs.rs -->\n"), format!("<!-- end of {part} -->\n"));
    let from = page.find(&begin).expect("the beginning of the part") + begin.len();
    let to = page.find(&end).expect("the end of the part");
    [&page[..from], &page[from..to], &page[to..]]
}

#[test]
fn the_grammar_and_the_operators_of_the_page_are_those_of_the_code() {
    let page = std::fs::read_to_string(PAGE).expect("docs/ir.md");
    let mut made = page.clone();
    for (part, text) in [("operators", operators()), ("grammar", format!("```text\n{}```\n", grammar()))] {
        let [before, _, after] = cut(&made, part);
        made = format!("{before}{text}{after}");
    }
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(PAGE, &made).expect("docs/ir.md is written");
    }
    assert!(
        made == page || std::env::var_os("BLESS").is_some(),
        "docs/ir.md is not that of the code: BLESS=1 rewrites it"
    );
}

/// The table of operators.
fn operators() -> String {
    let mut table = "| operator | operands | attributes | result |\n|---|---|---|---|\n".to_owned();
    for (rows, schema) in Op::schemas() {
        let operands: Vec<String> = schema.operands.iter().map(|field| described(field, "value")).collect();
        let attributes: Vec<String> = schema.attributes.iter().map(|field| described(field, "")).collect();
        for (row, doc) in rows.iter().zip(schema.docs) {
            let cells = [&operands, &attributes].map(|cells| match cells.is_empty() {
                true => "none".to_owned(),
                false => cells.join("; "),
            });
            let doc = sentence(doc).replace('|', "\\|");
            table.push_str(&format!("| `{}` | {} | {} | {doc} |\n", row.mnemonic, cells[0], cells[1]));
        }
    }
    table
}

/// The name of an operand or an attribute, whether it may be absent, and what its text is.
fn described(field: &Field, usual: &str) -> String {
    let optional = if field.optional { "optional " } else { "" };
    let form = if field.form == usual { String::new() } else { format!(": {}", field.form) };
    format!("{optional}`{}`{form}", field.name)
}

/// The first sentence of a description.
fn sentence(doc: &str) -> &str {
    let ends = doc.match_indices(". ").map(|(at, _)| at + 1);
    let begins = |at: &usize| doc[*at..].trim_start().starts_with(|c: char| c.is_uppercase() || c == '`');
    doc[..ends.into_iter().find(begins).unwrap_or(doc.len())].trim()
}

/// What the page says of a thing, outside of the parts that are made of the code.
#[test]
fn the_page_describes_all_that_the_code_has() {
    let page = std::fs::read_to_string(PAGE).expect("docs/ir.md");
    let [before, ..] = cut(&page, "operators");
    let says = |name: &str| before.contains(&format!("`{name}`")) || before.contains(&format!("### {name}\n"));
    let expression = |name: &str| ["(", "`, `"].iter().any(|end| before.contains(&format!("`{name}{end}")));
    let undescribed = [
        Op::mnemonics().filter(|name| !says(name)).collect::<Vec<_>>(),
        DType::ALL.iter().map(|dtype| dtype.name()).filter(|name| !says(name)).collect(),
        GgmlBlock::NAMES.iter().chain(Search::NAMES).copied().filter(|name| !says(name)).collect(),
        Form::NAMES.iter().copied().filter(|name| !expression(name)).collect(),
    ];
    assert_eq!(undescribed.concat(), [""; 0], "docs/ir.md does not say what these are");
    for (_, schema) in Op::schemas() {
        for field in schema.operands.iter().chain(&schema.attributes) {
            assert!(!field.doc.is_empty(), "`{}` has no description", field.name);
        }
    }
}

#[test]
fn operands_with_element_types_of_their_own_are_operands() {
    for (rows, schema) in Op::schemas() {
        for (name, _) in rows.iter().flat_map(|row| row.types.own) {
            assert!(*name == RESULT || schema.operands.iter().any(|field| field.name == *name), "{name}");
        }
    }
}
