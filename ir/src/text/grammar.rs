//! The grammar of the text form.

use super::forms::Form;
use crate::DType;
use crate::ops::{Op, SettingForm};
use crate::weight::{GgmlBlock, Search};

/// What statements are made of.
const STATEMENTS: &str = r#"graph      = "graph " string " {"  { statement }  "}"
statement  = input | weight | node | output                                (one a line)
input      = "input %" name ": " type
weight     = "weight @" name " = " typed
node       = result { ", " result } " = " operator "(" [ operands ] ")" [ " {" attributes "}" ] " : " type { ", " type }
output     = "output " name " = " value

result     = "%" name
value      = "%" name | "@" name                                           (% an input or a result, @ a weight)
name       = bare | string
bare       = ( letter | digit | "_" | "." | "/" ) { the same }
string     = '"' { character | "\n" | '\"' | "\\" } '"'

operands   = operand { ", " operand }
operand    = value | "[" [ item { ", " item } ] "]" | word ": " value
item       = value | "_"                                                   (_ in `foreign` only)
attributes = word " = " attribute { ", " word " = " attribute }
attribute  = integer | number | "true" | "false" | string | dtype | dimension
           | "[" [ attribute { ", " attribute } ] "]" | word " = " setting | type | "_" | word
word       = letter { letter | digit | "_" }"#;

/// What types and dimensions are.
const TYPES: &str = r#"type       = tensor | dtype "[*]" | "seq(" type ")" | "optional(" type ")" | "map(" dtype ", " type ")" | "?"
tensor     = dtype "[" [ dimension { ", " dimension } ] "]"
dimension  = [ "-" ] product { ( " + " | " - " ) product }
product    = factor { "*" factor }
factor     = digit { digit } | symbol
symbol     = ( letter | "_" ) { letter | digit | "_" }"#;

/// What expressions are made of.
const EXPRESSIONS: &str = r#"typed      = expression " : " tensor
integers   = "[" [ integer { ", " integer } ] "]"
packing    = "words" | "next_words" | "awq" | "codebook/" integer "/" integer "/" number
           | ( "codes/" | "scales/" | "numbers/" ) block"#;

/// The most characters of a line.
const WIDTH: usize = 118;

/// The grammar of the text form. Quotes have what is written; `[ ]` is optional, `{ }` is repeated, and parentheses group.
#[must_use]
pub fn grammar() -> String {
    let words = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    let operators: Vec<&str> = Op::mnemonics().collect();
    let dtypes: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
    let expressions = Form::ALL.iter().map(|form| call(form.name(), form.arguments()));
    let settings = SettingForm::ALL.iter().map(|form| call(form.name(), form.arguments()));
    let parts = [
        STATEMENTS.to_owned(),
        production("operator", words(&operators)),
        String::new(),
        TYPES.to_owned(),
        production("dtype", words(&dtypes)),
        String::new(),
        production("expression", expressions),
        EXPRESSIONS.to_owned(),
        production("block", words(GgmlBlock::NAMES)),
        production("search", words(Search::NAMES)),
        String::new(),
        production("setting", settings),
        "hex        = '\"' { two hexadecimal digits } '\"'".to_owned(),
    ];
    parts.map(|part| part + "\n").concat()
}

/// A name with what is between its parentheses.
fn call(name: &str, arguments: &str) -> String {
    let begun = match arguments.strip_prefix('"') {
        Some(rest) => format!("\"{name}({rest}"),
        None => format!("\"{name}(\" {arguments}"),
    };
    match begun.strip_suffix('"') {
        Some(rest) => format!("{rest})\""),
        None => format!("{begun} \")\""),
    }
}

/// A name, and what it stands for: one of several, in lines of a width.
fn production(name: &str, alternatives: impl IntoIterator<Item = String>) -> String {
    let (mut text, mut line) = (String::new(), format!("{name:<10} ="));
    for (at, alternative) in alternatives.into_iter().enumerate() {
        if at > 0 && line.len() + alternative.len() + " | ".len() > WIDTH {
            text.push_str(&line);
            line = format!("\n{:<10} ", "");
        }
        line.push_str(if at == 0 {
            " "
        } else if line.trim().is_empty() {
            "| "
        } else {
            " | "
        });
        line.push_str(&alternative);
    }
    text + &line
}
