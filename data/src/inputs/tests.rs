use planish_ir::{Shape, TensorType};

use super::*;

fn port(name: &str, dtype: DType, dims: &[&str]) -> Port {
    let shape = Shape::new(dims.iter().map(|dim| dim.parse().unwrap()));
    Port { name: name.to_owned(), ty: TensorType::new(dtype, shape) }
}

/// The inputs of a model, whose roles the names tell.
fn specs(ports: &[Port], ids: &BTreeMap<String, Values>) -> Result<Vec<InputSpec>, InputError> {
    super::specs(ports, ids, inferred(ports, &[]))
}

fn bert() -> Vec<InputSpec> {
    let tokens = ["batch_size", "sequence_length"];
    let ports = ["input_ids", "attention_mask", "token_type_ids"].map(|name| port(name, DType::I64, &tokens));
    let ids = BTreeMap::from([
        ("input_ids".to_owned(), Values::Ids { range: 0..5, pad: Some(2) }),
        ("token_type_ids".to_owned(), Values::Segments { count: 2 }),
    ]);
    specs(&ports, &ids).unwrap()
}

fn find<'a>(inputs: &'a [(String, Tensor)], name: &str) -> &'a [i64] {
    inputs.iter().find(|(n, _)| n == name).unwrap().1.as_i64().unwrap()
}

#[test]
fn the_first_row_is_full_and_the_others_are_padded_on_the_right() {
    let inputs = seeded_inputs(&bert(), 8, 6, 1, true).unwrap();
    let (ids, mask, types) =
        (find(&inputs, "input_ids"), find(&inputs, "attention_mask"), find(&inputs, "token_type_ids"));
    assert_eq!(mask[..6], [1; 6]);
    assert_eq!(types[..6], [0, 0, 0, 1, 1, 1]);
    for row in 0..8 {
        let row = row * 6..row * 6 + 6;
        let length = usize::try_from(mask[row.clone()].iter().sum::<i64>()).unwrap();
        assert!((1..6).contains(&length) || row.start == 0);
        assert!(mask[row.clone()].is_sorted_by(|a, b| a >= b), "padding is on the right");
        for (k, at) in row.enumerate() {
            assert_eq!(ids[at] == 2, k >= length, "only padding holds the pad");
            assert!((0..5).contains(&ids[at]));
            assert_eq!(types[at], i64::from(k >= length.div_ceil(2) && k < length));
        }
    }
    assert!((0..5).filter(|id| ids.contains(id)).count() == 5, "the whole range is drawn");
}

/// The texts of a row that are choices are padded differently.
#[test]
fn choices_have_a_dimension_of_their_own() {
    let tokens = ["batch_size", "num_choices", "sequence_length"];
    let ports = ["input_ids", "attention_mask"].map(|name| port(name, DType::I64, &tokens));
    let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..5, pad: Some(2) })]);
    let inputs = seeded_inputs(&specs(&ports, &ids).unwrap(), 3, 6, 1, true).unwrap();
    assert_eq!(inputs[0].1.shape(), [3, 4, 6]);
    let (ids, mask) = (find(&inputs, "input_ids"), find(&inputs, "attention_mask"));
    let lengths: Vec<i64> = mask.chunks(6).map(|text| text.iter().sum()).collect();
    assert_eq!((lengths[0], lengths[3], lengths.len()), (6, 6, 12));
    assert!(lengths[1..3].iter().all(|length| (1..6).contains(length)) && lengths[..3] == lengths[3..6]);
    assert!(ids.iter().zip(mask).all(|(id, mask)| (*id == 2) == (*mask == 0)), "only padding holds the pad");
}

#[test]
fn rows_before_a_cache_are_padded_on_the_left() {
    let tokens = ["batch_size", "sequence_length"];
    let ports = [
        port("input_ids", DType::I64, &tokens),
        port("attention_mask", DType::I64, &["batch_size", "past_sequence_length + sequence_length"]),
        port("position_ids", DType::I64, &tokens),
        port("past_key_values.0.key", DType::F32, &["batch_size", "2", "past_sequence_length", "4"]),
    ];
    let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..5, pad: Some(2) })]);
    let inputs = seeded_inputs(&specs(&ports, &ids).unwrap(), 8, 6, 1, true).unwrap();
    let (ids, mask, positions) =
        (find(&inputs, "input_ids"), find(&inputs, "attention_mask"), find(&inputs, "position_ids"));
    assert_eq!(inputs[3].1.shape(), [8, 2, 0, 4]);
    assert_eq!(mask[..6], [1; 6]);
    assert!(mask.contains(&0));
    for row in 0..8 {
        let mut next = 0;
        for at in row * 6..row * 6 + 6 {
            assert_eq!((ids[at] == 2, positions[at]), (mask[at] == 0, next));
            next += mask[at];
        }
        assert!(mask[row * 6..row * 6 + 6].is_sorted() && next > 0);
    }
}

#[test]
fn the_seed_decides() {
    let inputs = |seed| seeded_inputs(&bert(), 3, 9, seed, true).unwrap();
    assert_eq!(inputs(7), inputs(7));
    assert_ne!(inputs(7), inputs(8));
    assert_eq!(find(&seeded_inputs(&bert(), 3, 9, 7, false).unwrap(), "attention_mask"), [1; 27]);
    assert_eq!(find(&seeded_inputs(&bert(), 2, 1, 7, true).unwrap(), "attention_mask"), [1; 2]);
}

#[test]
fn dimensions_follow_their_names() {
    let ports = [
        port("past_key_values.0.key", DType::F32, &["batch_size", "4", "past_sequence_length", "8"]),
        port("attention_mask", DType::I64, &["batch_size", "past_sequence_length + sequence_length"]),
        port("pixel_values", DType::F16, &["batch_size", "3", "2", "2"]),
        port("use_cache_branch", DType::Bool, &["1"]),
        port("position_ids", DType::I32, &["batch_size", "sequence_length"]),
    ];
    let specs = specs(&ports, &BTreeMap::new()).unwrap();
    let inputs = seeded_inputs(&specs, 2, 5, 3, false).unwrap();
    let shapes: Vec<&[usize]> = inputs.iter().map(|(_, tensor)| tensor.shape()).collect();
    assert_eq!(shapes, [&[2, 4, 0, 8][..], &[2, 5], &[2, 3, 2, 2], &[1], &[2, 5]]);
    assert!(inputs[2].1.to_f64().iter().all(|v| v.abs() <= 1.0) && inputs[2].1.dtype() == DType::F16);
    assert_eq!(inputs[4].1.as_i32().unwrap()[5..], [0, 1, 2, 3, 4]);
}

/// Names of other exporters say nothing: `s0`, `unk__5`, `N`.
#[test]
fn dimensions_without_speaking_names_follow_their_places() {
    let ports = [
        port("input_ids", DType::I64, &["s0", "s1"]),
        port("attention_mask", DType::I64, &["s0", "unk__5"]),
        port("past_key_values.0.key", DType::F32, &["s0", "4", "s2", "8"]),
        port("x", DType::F32, &["N", "3", "2", "2"]),
    ];
    let ids = BTreeMap::from([("input_ids".to_owned(), Values::Ids { range: 0..5, pad: None })]);
    let specs = specs(&ports, &ids).unwrap();
    let inputs = seeded_inputs(&specs, 2, 5, 3, false).unwrap();
    let shapes: Vec<&[usize]> = inputs.iter().map(|(_, tensor)| tensor.shape()).collect();
    assert_eq!(shapes, [&[2, 5][..], &[2, 5], &[2, 4, 0, 8], &[2, 3, 2, 2]]);
    assert!(has_sequence(&specs) && !has_sequence(&specs[3..]));
}

/// Sizes that say what they are, as of images, are not lengths of sequences.
#[test]
fn sides_of_images_are_given_on_their_own() {
    let x = port("x", DType::F32, &["batch", "num_channels", "height", "width"]);
    let specs = specs(&[x, port("ids", DType::F32, &["batch", "tokens"])], &BTreeMap::new()).unwrap();
    let sizes = Sizes { batch: 2, sequence: 5, side: Some(16) };
    assert_eq!(shapes(&specs, sizes).unwrap(), [vec![2, 3, 16, 16], vec![2, 5]]);
}

#[test]
fn texts_are_words_in_bytes() {
    let specs = specs(&[port("x", DType::String, &["n", "2"])], &BTreeMap::new()).unwrap();
    let inputs = seeded_inputs(&specs, 3, 1, 0, false).unwrap();
    assert_eq!(inputs[0].1.shape(), [3, 2, LETTERS]);
    let is_word = |word: &[u8]| {
        let length = word.iter().position(|byte| *byte == 0).unwrap_or(LETTERS);
        length > 0 && word[..length].iter().all(u8::is_ascii_lowercase) && word[length..].iter().all(|b| *b == 0)
    };
    assert!(inputs[0].1.as_u8().unwrap().chunks(LETTERS).all(is_word));
}

#[test]
fn inputs_of_terabytes_are_refused_before_they_are_made() {
    let huge = [port("x", DType::F32, &["1099511627776"])];
    let refused = seeded_inputs(&specs(&huge, &BTreeMap::new()).unwrap(), 1, 1, 0, false).unwrap_err().to_string();
    assert!(refused.contains("`x`, f32[1099511627776]") && !refused.contains("--shapes"), "{refused}");
    let open = [port("x", DType::F32, &["batch_size", "1099511627776"])];
    let refused = seeded_inputs(&specs(&open, &BTreeMap::new()).unwrap(), 1, 1, 0, false).unwrap_err().to_string();
    assert!(refused.contains("--shapes"), "{refused}");
    // Each may be small enough alone.
    let several = ["a", "b", "c"].map(|name| port(name, DType::U8, &["400000000"]));
    let refused = shapes(
        &specs(&several, &BTreeMap::from(several.clone().map(|p| (p.name, Values::Noise)))).unwrap(),
        Sizes { batch: 1, sequence: 1, side: None },
    );
    assert!(refused.unwrap_err().to_string().contains("`c`"));
}

#[test]
fn what_is_not_known_is_an_error() {
    let unknown = specs(&[port("labels", DType::I64, &["batch_size"])], &BTreeMap::new()).unwrap_err();
    assert_eq!(unknown, InputError::NoRange { input: "labels".to_owned() });
    let noise = |dims: &[&str]| {
        let specs = specs(&[port("x", DType::F32, dims)], &BTreeMap::new()).unwrap();
        seeded_inputs(&specs, 2, usize::MAX / 2, 0, false).unwrap_err().to_string()
    };
    assert_eq!(
        noise(&["batch", "3", "height", "4"]),
        "the size of the dimension `height` of the input `x` is not known: compile with --shapes x=..."
    );
    assert!(
        noise(&["sequence_length", "batch_size", "8"])
            .starts_with("the inputs of one run may have 1073741824 bytes at most")
    );
    let mut specs = bert();
    specs[0].values = Values::Ids { range: 2..3, pad: Some(2) };
    let empty = seeded_inputs(&specs, 1, 4, 0, false).unwrap_err();
    assert_eq!(empty, InputError::EmptyRange { input: "input_ids".to_owned(), range: 2..3 });
}

#[test]
fn boxes_have_their_sides_in_order() {
    let boxes = [port("bbox", DType::I64, &["batch_size", "sequence_length", "4"])];
    let ids = BTreeMap::from([("bbox".to_owned(), Values::Ids { range: 0..128, pad: Some(0) })]);
    let inputs = seeded_inputs(&specs(&boxes, &ids).unwrap(), 3, 20, 1, true).unwrap();
    let sides = find(&inputs, "bbox").as_chunks::<4>().0;
    assert_eq!(sides.len(), 60);
    assert!(sides.iter().all(|[left, upper, right, lower]| left <= right && upper <= lower));
    assert!(sides.iter().flatten().any(|side| *side > 64));
}

/// Patches of images of any shape, and positions of three coordinates.
#[test]
fn grids_have_all_patches() {
    let ports = [
        port("pixel_values", DType::F32, &["4*num_places", "6"]),
        port("image_grid_thw", DType::I64, &["batch_size", "3"]),
    ];
    let mut all = specs(&ports, &BTreeMap::new()).unwrap();
    let mut of = (*all[0].of).clone();
    of.symbols.insert(planish_ir::Symbol::new("num_places"), planish_ir::SymbolRole::Tokens);
    of.symbols.insert(planish_ir::Symbol::new("batch_size"), planish_ir::SymbolRole::Rows);
    all.iter_mut().for_each(|spec| spec.of = Arc::new(of.clone()));
    let inputs = seeded_inputs(&all, 2, 17, 1, false).unwrap();
    assert_eq!((inputs[0].1.shape(), find(&inputs, "image_grid_thw")), (&[68, 6][..], &[1, 4, 8, 1, 6, 6][..]));
    let ids = ["3", "batch_size", "sequence_length"];
    let positions =
        seeded_inputs(&specs(&[port("position_ids", DType::I64, &ids)], &BTreeMap::new()).unwrap(), 1, 4, 1, false);
    assert_eq!(find(&positions.unwrap(), "position_ids"), [0, 1, 2, 3, 0, 0, 1, 1, 0, 0, 0, 1]);
}
