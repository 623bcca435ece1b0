//! Operators on elements and those that move them.

use super::*;

#[test]
fn elements_of_operands_that_broadcast() {
    for (a, b) in
        [("[n, 5]", "[n, 5]"), ("[n, 5]", "[5]"), ("[n, 5]", "[n, 1]"), ("[n, 5]", "[]"), ("[2, 1, 5]", "[n, 1]")]
    {
        for dtype in ["f32", "f16", "bf16"] {
            let result = match a {
                "[2, 1, 5]" => "[2, n, 5]",
                a => a,
            };
            let statements = format!(
                "input %a: {dtype}{a}
                 input %b: {dtype}{b}
                 %y = mul(%a, %b) : {dtype}{result}
                 %z = less(%a, %b) : bool{result}
                 output y = %y
                 output z = %z"
            );
            check(&statements, &[("n", 131)], 3);
        }
    }
}

#[test]
fn functions_of_elements() {
    for dtype in ["f32", "f16", "bf16"] {
        for function in ["neg", "abs", "floor", "ceil", "exp", "cos", "sin", "erf", "tanh", "sigmoid", "relu", "silu"] {
            let statements = format!(
                "input %x: {dtype}[n, 3]
                 %t = transpose(%x) {{perm = [1, 0]}} : {dtype}[3, n]
                 %y = {function}(%t) : {dtype}[3, n]
                 output y = %y"
            );
            check(&statements, &[("n", 70)], 5);
        }
    }
}

#[test]
fn integers_booleans_and_casts() {
    let statements = "
        input %x: i64[n]
        input %c: bool[n]
        %i = iota() {dtype = i64, length = n} : i64[n]
        %s = add(%x, %i) : i64[n]
        %f = cast(%s) {to = f32} : f32[n]
        %h = cast(%f) {to = f16} : f16[n]
        %n = not(%c) : bool[n]
        %p = select(%n, %s, %x) : i64[n]
        %b = cast(%x) {to = bool} : bool[n]
        %z = sizes() {of = [n, 2 * n]} : i64[2]
        output f = %f
        output h = %h
        output p = %p
        output b = %b
        output z = %z
        output x = %x
        output again = %p";
    check(statements, &[("n", 300)], 7);
}

#[test]
fn elements_move() {
    let statements = "
        input %x: f32[2, n, 6]
        input %i: i64[3]
        %s = slice(%x) {axis = 2, start = 1, end = 5} : f32[2, n, 4]
        %r = reshape(%s) {shape = [2 * n, 2, 2]} : f32[2 * n, 2, 2]
        %t = transpose(%r) {perm = [2, 0, 1]} : f32[2, 2 * n, 2]
        %e = expand(%s) {shape = [2, n, 4]} : f32[2, n, 4]
        %c = concat([%s, %e, %x]) {axis = 2} : f32[2, n, 14]
        %p, %q = split(%c) {axis = 2, sizes = [5, 9]} : f32[2, n, 5], f32[2, n, 9]
        %g = gather(%q, %i) {axis = 2} : f32[2, n, 3]
        output t = %t
        output p = %p
        output g = %g";
    check(statements, &[("n", 5)], 11);
}
