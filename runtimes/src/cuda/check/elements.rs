//! Operators on elements, those that move them, and reductions.

use super::Case;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (a, b, result) in [
        ("[n, 5]", "[n, 5]", "[n, 5]"),
        ("[n, 5]", "[5]", "[n, 5]"),
        ("[n, 5]", "[n, 1]", "[n, 5]"),
        ("[n, 5]", "[]", "[n, 5]"),
        ("[2, 1, 5]", "[n, 1]", "[2, n, 5]"),
    ] {
        for dtype in ["f32", "f16", "bf16"] {
            let statements = format!(
                "input %a: {dtype}{a}
                 input %b: {dtype}{b}
                 %y = mul(%a, %b) : {dtype}{result}
                 %z = less(%a, %b) : bool{result}
                 output y = %y
                 output z = %z"
            );
            cases.push(Case::new(
                format_args!("mul and less of {dtype}{a} and {dtype}{b}"),
                statements,
                &[("n", 131)],
                3,
            ));
        }
    }
    for function in ["neg", "abs", "floor", "ceil", "exp", "cos", "sin", "erf", "tanh", "sigmoid", "relu", "silu"] {
        for dtype in ["f32", "f16"] {
            let statements = format!(
                "input %x: {dtype}[n, 3]
                 %t = transpose(%x) {{perm = [1, 0]}} : {dtype}[3, n]
                 %y = {function}(%t) : {dtype}[3, n]
                 output y = %y"
            );
            cases.push(Case::new(format_args!("{function} of {dtype}"), statements, &[("n", 70)], 5));
        }
    }
    let functions = "
        input %x: f32[n]
        input %k: i64[n]
        %a = abs(%x) : f32[n]
        %s = sqrt(%a) : f32[n]
        %l = log(%a) : f32[n]
        %p = pow(%a, %x) : f32[n]
        %d = div(%x, %a) : f32[n]
        %g = max(%x, %s) : f32[n]
        %m = min(%x, %s) : f32[n]
        %e = gelu(%x) {form = erf} : f32[n]
        %t = gelu(%x) {form = tanh} : f32[n]
        %i = neg(%k) : i64[n]
        %v = abs(%i) : i64[n]
        %nan = is_nan(%x) : bool[n]
        output l = %l
        output p = %p
        output d = %d
        output g = %g
        output m = %m
        output e = %e
        output t = %t
        output v = %v
        output nan = %nan";
    cases.push(Case::new("functions of elements", functions, &[("n", 999)], 6));
    let comparisons = "
        input %a: i64[n]
        input %b: i64[n]
        %e = equal(%a, %b) : bool[n]
        %g = greater(%a, %b) : bool[n]
        %ge = greater_or_equal(%a, %b) : bool[n]
        %le = less_or_equal(%a, %b) : bool[n]
        %y = or(%g, %e) : bool[n]
        %d = sub(%a, %b) : i64[n]
        output d = %d
        output e = %e
        output ge = %ge
        output le = %le
        output y = %y";
    cases.push(Case::new("differences and comparisons", comparisons, &[("n", 300)], 8));
    let integers = "
        input %x: i64[n]
        input %c: bool[n]
        %i = iota() {dtype = i64, length = n} : i64[n]
        %s = add(%x, %i) : i64[n]
        %f = cast(%s) {to = f32} : f32[n]
        %h = cast(%f) {to = f16} : f16[n]
        %n = not(%c) : bool[n]
        %both = and(%n, %c) : bool[n]
        %p = select(%n, %s, %x) : i64[n]
        %b = cast(%x) {to = bool} : bool[n]
        %sum = cumsum(%x) {axis = 0} : i64[n]
        %z = sizes() {of = [n, 2 * n]} : i64[2]
        output f = %f
        output h = %h
        output p = %p
        output b = %b
        output both = %both
        output sum = %sum
        output z = %z
        output x = %x
        output again = %p";
    cases.push(Case::new("integers, booleans and casts", integers, &[("n", 300)], 7));
    for (length, dtype) in
        [(1, "i64"), (7, "f16"), (64, "f32"), (128, "i32"), (129, "i64"), (512, "i64"), (1000, "bf16"), (2053, "f32")]
    {
        let statements = format!(
            "input %x: {dtype}[n, {length}]
             input %y: {dtype}[{length}, 6]
             %r = cumsum(%x) {{axis = 1}} : {dtype}[n, {length}]
             %t = cumsum(%y) {{axis = 0}} : {dtype}[{length}, 6]
             output r = %r
             output t = %t"
        );
        cases.push(Case::new(format_args!("cumulative sums of {dtype} by {length}"), statements, &[("n", 6)], 13));
    }
    let movement = "
        input %x: f32[2, n, 6]
        input %i: i64[3]
        weight @table = uniform(1) : f32[8, 4]
        %rows = embedding(@table, %i) : f32[3, 4]
        %mean = reduce_mean(%x) {axes = [2], keep = false} : f32[2, n]
        output rows = %rows
        output mean = %mean
        %s = slice(%x) {axis = 2, start = 1, end = 5} : f32[2, n, 4]
        %r = reshape(%s) {shape = [2 * n, 2, 2]} : f32[2 * n, 2, 2]
        %t = transpose(%r) {perm = [2, 0, 1]} : f32[2, 2 * n, 2]
        %e = expand(%s) {shape = [2, n, 4]} : f32[2, n, 4]
        %c = concat([%s, %e, %x]) {axis = 2} : f32[2, n, 14]
        %p, %q = split(%c) {axis = 2, sizes = [5, 9]} : f32[2, n, 5], f32[2, n, 9]
        %g = gather(%q, %i) {axis = 2} : f32[2, n, 3]
        %w = gather(%x, %i) {axis = 1} : f32[2, 3, 6]
        output t = %t
        output p = %p
        output g = %g
        output w = %w";
    cases.push(Case::new("elements that move", movement, &[("n", 7)], 11));
    for (dtype, columns) in [("f32", 7), ("f16", 1500), ("i64", 40), ("bf16", 33)] {
        let statements = format!(
            "input %x: {dtype}[3, n, {columns}]
             %s = reduce_sum(%x) {{axes = [2], keep = true}} : {dtype}[3, n, 1]
             %m = reduce_max(%x) {{axes = [0, 2], keep = false}} : {dtype}[n]
             %l = reduce_min(%x) {{axes = [1], keep = false}} : {dtype}[3, {columns}]
             output s = %s
             output m = %m
             output l = %l"
        );
        cases.push(Case::new(format_args!("reductions of {dtype} by {columns}"), statements, &[("n", 5)], 12));
    }
    cases
}
