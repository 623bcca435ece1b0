//! docs/ir.md lists every operator with its operands: a table that is made of the code.

#![allow(clippy::disallowed_methods)]

use planish_ir::Op;

const BEGIN: &str = "<!-- operators: made by ir/tests/ir/docs.rs -->\n";
const END: &str = "<!-- end of operators -->\n";

#[test]
fn the_page_lists_every_operator_with_its_operands() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ir.md");
    let page = std::fs::read_to_string(path).expect("docs/ir.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
    let (_, after) = rest.split_once(END).expect("the end of the table");
    let mut table = "| operator | operands, in the order of the text form |\n|---|---|\n".to_owned();
    for mnemonic in Op::mnemonics() {
        let operands = Op::operand_names(mnemonic).expect("an operator has a list of operands");
        let operands: Vec<String> = operands.iter().map(|name| format!("`{name}`")).collect();
        let operands = if operands.is_empty() { "none".to_owned() } else { operands.join(", ") };
        table.push_str(&format!("| `{mnemonic}` | {operands} |\n"));
        // It is described outside of the table.
        assert!(
            before.contains(&format!("`{mnemonic}`")) || before.contains(&format!("### {mnemonic}\n")),
            "{mnemonic}"
        );
    }
    let made = format!("{before}{BEGIN}{table}{END}{after}");
    if std::env::var_os("BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(path, &made).expect("docs/ir.md is written");
    }
    assert!(made == page || std::env::var_os("BLESS").is_some(), "docs/ir.md has another table: BLESS=1 rewrites it");
}
