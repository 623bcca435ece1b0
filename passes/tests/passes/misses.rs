//! What raising says where it comes near.

use planish_ir::text;
use planish_passes::raise::misses;

/// The reasons that raising gives for a graph of a filetest.
fn reasons(graph: &str) -> Vec<String> {
    let graph = graph.split("; ---").next().unwrap_or_default();
    let graph = text::parse(graph.split_once('\n').unwrap().1, &text::no_files).unwrap();
    misses(&graph).into_iter().map(|miss| format!("{} at {}: {}", miss.rule, miss.at, miss.reason)).collect()
}

#[test]
fn a_near_miss_names_the_condition_and_the_value() {
    let activations = reasons(include_str!("../../../tests/filetests/raise-activations/gelu_near.ir"));
    assert_eq!(
        activations,
        [
            "gelu at of_another: `c` is multiplied with something else than `x` / 2",
            "gelu at divided_by_two: `g` is 1 + erf of what is not GELU's argument",
        ]
    );
    let linear = reasons(include_str!("../../../tests/filetests/raise-linear/no_layer.ir"));
    assert_eq!(linear, ["linear at several: the weight `batched` is f32[2, 4, 3], not a matrix"]);
    let norms = reasons(include_str!("../../../tests/filetests/raise-norms/near.ir"));
    assert_eq!(
        norms,
        [
            "norm at other_axis: the mean `m` is not over the last axis, and that axis kept",
            "norm at of_another: what is divided by `s` is not `x` times a vector",
            "norm at no_square: `i`, whose mean is taken, is no square",
        ]
    );
    let casts = reasons(include_str!("../../../tests/filetests/raise-norms/casts_near.ir"));
    assert_eq!(
        casts,
        [
            "norm at square_in_half: `f`, whose mean is taken, is no square",
            "half precision at weights_beyond_half: `large` does not fit f16",
        ]
    );
    let attention = reasons(include_str!("../../../tests/filetests/raise-attention/near.ir"));
    assert_eq!(
        attention,
        [
            "attention at scaled_after_the_bias: `h` scales scores to which something was added",
            "attention at no_scores: `e`, which exp computes, is no step from queries and keys to scores",
            "attention at no_heads: `q3` is f32[b, s, 4], which is not of batch, heads, positions and features",
        ]
    );
    let rotary = reasons(include_str!("../../../tests/filetests/raise-rotary/near.ir"));
    assert_eq!(rotary, ["rotary at no_angles: `free` is not of angles that stand twice beside each other"]);
}

#[test]
fn a_factor_of_about_what_was_meant_is_a_near_miss() {
    let norms = reasons(include_str!("../../../tests/filetests/raise-norms/factor_near.ir"));
    assert_eq!(norms, ["norm at by_about_one: what is divided by `r` is `x` times the number 1.00005"]);
    let activations = reasons(include_str!("../../../tests/filetests/raise-activations/factor_near.ir"));
    assert_eq!(activations, ["gelu at about_halved: `c` is multiplied with something else than `x` / 2"]);
}

#[test]
fn other_forms_have_near_misses_of_their_own() {
    let roots = reasons(include_str!("../../../tests/filetests/raise-norms/near_roots.ir"));
    assert_eq!(
        roots,
        [
            "norm at no_root: `r` has another power of `m` than its square root",
            "norm at put_before: the mean `row` is not over the last axis, and that axis kept",
            "norm at of_any_size: the features of `z` are not known",
        ]
    );
    let spread = reasons(include_str!("../../../tests/filetests/raise-norms/scale_spread_near.ir"));
    assert_eq!(
        spread,
        [
            "layer_norm at bias_is_no_vector: `shift`, to which `xs` is added, is no vector of weights",
            "layer_norm at two_weights: `xs` and `mv` are not `x` and its mean times the same vector over `r`",
        ]
    );
    let gelu = reasons(include_str!("../../../tests/filetests/raise-activations/gelu_half_inside.ir"));
    assert_eq!(
        gelu,
        [
            "gelu at no_multiple: `e` is no multiple of 1 + erf",
            "gelu at halved_twice: `d` is multiplied with something else than `x`",
        ]
    );
    let silu = reasons(include_str!("../../../tests/filetests/raise-activations/silu_written_out.ir"));
    assert_eq!(silu, ["silu at of_another: `z` is multiplied with the sigmoid of `x`, not its own",]);
}

#[test]
fn a_mask_that_stays_a_bias_is_a_near_miss() {
    let file = include_str!("../../../tests/filetests/raise-attention/unknown_mask_stays_a_bias.ir");
    let (_, after) = file.split_once("; ---").unwrap();
    let bias = reasons(&format!("; after{after}"));
    assert_eq!(bias, ["attention at c: `mask` leaves out keys by `same`, which is no mask of a batch's keys"]);
}
