//! Codes and numbers out of the layouts of weight files, which the tests write by the formats' definitions.

use half::f16;
use planish_ir::ops::Real;
use planish_ir::weight::{CHUNK_BYTES, GgmlBlock, Packing};
use planish_ir::{DType, Graph, Origin, Weight, text};
use proptest::prelude::*;

use crate::weight::{Buffer, pieces, stored};

fn bytes(values: &[u8]) -> Weight {
    Weight::inline(DType::U8, vec![values.len()], values).unwrap()
}

fn words(values: &[u32]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|word| word.to_le_bytes()).collect();
    Weight::inline(DType::I32, vec![values.len()], bytes).unwrap()
}

fn floats(values: &[f32]) -> Weight {
    let numbers: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
    Weight::numbers(DType::F32, vec![values.len()], &numbers).unwrap()
}

fn numbers(part: &Weight, packing: Packing, dtype: DType, shape: &[usize]) -> Vec<f64> {
    Weight::unpack(std::slice::from_ref(part), packing, dtype, shape).unwrap().read_numbers().unwrap()
}

#[test]
fn words_hold_codes_from_their_lowest_bits_on() {
    let part = words(&[0x7654_3210, 0xfedc_ba98]);
    let rising: Vec<f64> = (0..16).map(f64::from).collect();
    assert_eq!(numbers(&part, Packing::Words, DType::U4, &[2, 8]), rising);
    let next: Vec<f64> = (1..17).map(|code| f64::from(code % 16)).collect();
    assert_eq!(numbers(&part, Packing::NextWords, DType::U4, &[16]), next);

    let part = words(&[0xe4, 0xff00_0080]);
    assert_eq!(numbers(&part, Packing::Words, DType::U2, &[2, 16])[..5], [0.0, 1.0, 2.0, 3.0, 0.0]);
    assert_eq!(numbers(&part, Packing::NextWords, DType::U2, &[2, 16])[..5], [1.0, 2.0, 3.0, 0.0, 1.0]);
    assert_eq!(numbers(&part, Packing::Words, DType::U8, &[8])[4..], [128.0, 0.0, 0.0, 255.0]);
    assert_eq!(numbers(&part, Packing::NextWords, DType::U8, &[8])[4..], [129.0, 1.0, 1.0, 0.0]);
}

#[test]
fn awq_interleaves_the_codes_of_a_word() {
    // Nibble `i`, from the lowest on, has code ORDER[i].
    let word = [0u32, 2, 4, 6, 1, 3, 5, 7].iter().enumerate().fold(0, |word, (i, code)| word | code << (4 * i));
    let rising: Vec<f64> = (0..8).map(f64::from).collect();
    assert_eq!(numbers(&words(&[word]), Packing::Awq, DType::U4, &[1, 8]), rising);
}

#[test]
fn a_codebook_has_a_scale_for_each_block() {
    let table: Vec<f32> = (0..16u8).map(|i| f32::from(i) / 8.0 - 1.0).collect();
    let parts = [bytes(&[0x0f, 0x84, 0x21]), floats(&table), floats(&[2.0, 4.0])];
    let packing = Packing::Codebook { bits: 4, block: 4, offset: Real(0.5) };
    let weight = Weight::unpack(&parts, packing, DType::F32, &[2, 3]).unwrap();
    let expected: Vec<f64> = [(0, 2.0), (15, 2.0), (8, 2.0), (4, 2.0), (2, 4.0), (1, 4.0)]
        .iter()
        .map(|(index, scale)| f64::from(table[*index] * scale + 0.5))
        .collect();
    assert_eq!(weight.read_numbers().unwrap(), expected);

    let table: Vec<f32> = (0..=255u8).map(f32::from).collect();
    let parts = [bytes(&[3, 255]), floats(&table), floats(&[0.5, 0.25])];
    let packing = Packing::Codebook { bits: 8, block: 1, offset: Real(0.0) };
    assert_eq!(Weight::unpack(&parts, packing, DType::F32, &[2]).unwrap().read_numbers().unwrap(), [1.5, 63.75]);
}

/// A block as GGML's C structures lay it out, of the codes and of the scales and minima of its groups, with `d` and `dmin`.
fn block(kind: GgmlBlock, codes: &[u8], groups: &[(u8, u8)], [d, dmin]: [f32; 2]) -> Vec<u8> {
    let half = |x: f32| f16::from_f32(x).to_le_bytes();
    let halves = |codes: &[u8]| (0..16).map(|i| codes[i] & 0xf | codes[i + 16] << 4).collect::<Vec<u8>>();
    // get_scale_min_k4, backwards.
    let six_bits = || {
        let mut packed = [0; 12];
        for (j, (scale, minimum)) in groups.iter().enumerate() {
            if j < 4 {
                packed[j] |= scale;
                packed[j + 4] |= minimum;
            } else {
                packed[j + 4] = scale & 0xf | (minimum & 0xf) << 4;
                packed[j - 4] |= scale >> 4 << 6;
                packed[j] |= minimum >> 4 << 6;
            }
        }
        packed
    };
    let lower = |mask: u8| {
        let pairs = codes.chunks(64).flat_map(move |c| (0..32).map(move |l| c[l] & mask | (c[l + 32] & mask) << 4));
        pairs.collect::<Vec<u8>>()
    };
    let fives =
        || (0..4).map(|byte| (0..8).fold(0, |all, bit| all | (codes[byte * 8 + bit] >> 4) << bit)).collect::<Vec<u8>>();
    // The lower two bits of codes, in four parts of 32 for each 32 bytes.
    let twos = || {
        let byte = |n: usize, l: usize| (0..4).fold(0, |all, j| all | (codes[n * 128 + j * 32 + l] & 3) << (2 * j));
        (0..2).flat_map(|n| (0..32).map(move |l| (n, l))).map(|(n, l)| byte(n, l)).collect::<Vec<u8>>()
    };
    match kind {
        GgmlBlock::Q5_0 => [&half(d)[..], &fives(), &halves(codes)].concat(),
        GgmlBlock::Q5_1 => [&half(d)[..], &half(dmin), &fives(), &halves(codes)].concat(),
        GgmlBlock::Q2K => {
            let scales: Vec<u8> = groups.iter().map(|(scale, minimum)| scale | minimum << 4).collect();
            [&scales[..], &twos(), &half(d), &half(dmin)].concat()
        }
        GgmlBlock::Q3K => {
            let third = (0..32).map(|l| (0..8).fold(0, |byte, j| byte | (codes[j * 32 + l] >> 2) << j));
            let low = (0..8).map(|j| groups[j].0 & 0xf | (groups[j + 8].0 & 0xf) << 4);
            let high = (0..4).map(|j| (0..4).fold(0, |byte, k| byte | (groups[k * 4 + j].0 >> 4) << (2 * k)));
            [third.collect::<Vec<u8>>(), twos(), low.chain(high).collect(), half(d).to_vec()].concat()
        }
        GgmlBlock::Iq4Nl => [&half(d)[..], &halves(codes)].concat(),
        GgmlBlock::Iq4Xs => {
            let high = (0..8).fold(0u16, |all, j| all | u16::from(groups[j].0 >> 4) << (2 * j));
            let low = (0..4).map(|j| groups[2 * j].0 & 0xf | (groups[2 * j + 1].0 & 0xf) << 4);
            let parts = codes.chunks(32).flat_map(halves).collect::<Vec<u8>>();
            [&half(d)[..], &high.to_le_bytes(), &low.collect::<Vec<u8>>(), &parts].concat()
        }
        GgmlBlock::Mxfp4 => [&[groups[0].0][..], &halves(codes)].concat(),
        GgmlBlock::Q4_0 => [&half(d)[..], &halves(codes)].concat(),
        GgmlBlock::Q4_1 => [&half(d)[..], &half(dmin), &halves(codes)].concat(),
        GgmlBlock::Q8_0 => [&half(d)[..], codes].concat(),
        GgmlBlock::Q4K => [&half(d)[..], &half(dmin), &six_bits(), &lower(0xf)].concat(),
        GgmlBlock::Q5K => {
            let fifth = (0..32).map(|l| (0..8).fold(0, |byte, j| byte | (codes[j * 32 + l] >> 4) << j));
            [&half(d)[..], &half(dmin), &six_bits(), &fifth.collect::<Vec<u8>>(), &lower(0xf)].concat()
        }
        GgmlBlock::Q6K => {
            let (mut low, mut high) = (vec![0; 128], vec![0; 64]);
            for (n, l) in (0..2).flat_map(|n| (0..32).map(move |l| (n, l))) {
                let code = |group: usize| codes[n * 128 + group * 32 + l];
                low[n * 64 + l] = code(0) & 0xf | (code(2) & 0xf) << 4;
                low[n * 64 + l + 32] = code(1) & 0xf | (code(3) & 0xf) << 4;
                high[n * 32 + l] = (0..4).fold(0, |byte, group| byte | code(group) >> 4 << (2 * group));
            }
            let scales: Vec<u8> = groups.iter().map(|group| group.0).collect();
            [&low[..], &high, &scales, &half(d)].concat()
        }
    }
}

/// What the codes of a block stand for.
fn meaning(kind: GgmlBlock, codes: &[u8], groups: &[(u8, u8)], [d, dmin]: [f32; 2]) -> Vec<f32> {
    let [d, dmin] = [d, dmin].map(|x| f16::from_f32(x).to_f32());
    const NONLINEAR: [f32; 16] =
        [-127., -104., -83., -65., -49., -35., -22., -10., 1., 13., 25., 38., 53., 69., 89., 113.];
    const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let number = |(i, code): (usize, &u8)| {
        let group = |size: usize| groups[i / size];
        let six_bits = |scale: u8| f32::from(scale) - 32.0;
        match kind {
            GgmlBlock::Q5_0 => d * (f32::from(*code) - 16.0),
            GgmlBlock::Q5_1 => d * f32::from(*code) + dmin,
            GgmlBlock::Q2K => d * f32::from(group(16).0) * f32::from(*code) - dmin * f32::from(group(16).1),
            GgmlBlock::Q3K => d * six_bits(group(16).0) * (f32::from(*code) - 4.0),
            GgmlBlock::Iq4Nl => d * NONLINEAR[usize::from(*code)],
            GgmlBlock::Iq4Xs => d * six_bits(group(32).0) * NONLINEAR[usize::from(*code)],
            GgmlBlock::Mxfp4 => {
                let number = E2M1[usize::from(*code & 7)] * f64::from(i32::from(group(32).0) - 127).exp2();
                if *code > 7 && number != 0.0 { -number as f32 } else { number as f32 }
            }
            GgmlBlock::Q4_0 => d * (f32::from(*code) - 8.0),
            GgmlBlock::Q4_1 => d * f32::from(*code) + dmin,
            GgmlBlock::Q8_0 => d * f32::from(code.cast_signed()),
            GgmlBlock::Q4K | GgmlBlock::Q5K => {
                d * f32::from(group(32).0) * f32::from(*code) - dmin * f32::from(group(32).1)
            }
            GgmlBlock::Q6K => d * f32::from(group(16).0.cast_signed()) * (f32::from(*code) - 32.0),
        }
    };
    codes.iter().enumerate().map(number).collect()
}

/// A kind of block with the largest code, the number of groups and the largest scale of one.
const KINDS: [(GgmlBlock, u8, usize, u8); 13] = [
    (GgmlBlock::Q4_0, 15, 0, 0),
    (GgmlBlock::Q4_1, 15, 0, 0),
    (GgmlBlock::Q5_0, 31, 0, 0),
    (GgmlBlock::Q5_1, 31, 0, 0),
    (GgmlBlock::Q8_0, 255, 0, 0),
    (GgmlBlock::Q2K, 3, 16, 15),
    (GgmlBlock::Q3K, 7, 16, 63),
    (GgmlBlock::Iq4Nl, 15, 0, 0),
    (GgmlBlock::Iq4Xs, 15, 8, 63),
    (GgmlBlock::Mxfp4, 15, 1, 255),
    (GgmlBlock::Q4K, 15, 8, 63),
    (GgmlBlock::Q5K, 31, 8, 63),
    (GgmlBlock::Q6K, 63, 16, 255),
];

/// Weights of numbers, and of codes and scales where the kind has them.
fn unpacked(kind: GgmlBlock, packed: &Weight, blocks: usize) -> (Weight, Option<(Weight, Weight)>) {
    let of =
        |packing, dtype, elements| Weight::unpack(std::slice::from_ref(packed), packing, dtype, &[elements]).unwrap();
    let elements = blocks * kind.elements();
    let codes = kind.codes().zip(kind.scales()).map(|(codes, (scales, each))| {
        (of(Packing::Codes(kind), codes, elements), of(Packing::Scales(kind), scales, blocks * each))
    });
    (of(Packing::Numbers(kind), DType::F32, elements), codes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_of_ggml(
        at in 0..KINDS.len(),
        codes in prop::collection::vec(any::<u8>(), 512),
        groups in prop::collection::vec(any::<(u8, u8)>(), 32),
        floats in any::<[i16; 2]>(),
    ) {
        let (kind, largest, count, scale) = KINDS[at];
        let whole = floats.map(|x| f32::from(x) / 4096.0);
        let groups: Vec<(u8, u8)> = groups.iter().map(|(a, b)| (a & scale, b & scale)).collect();
        let codes: Vec<u8> = codes[..2 * kind.elements()].iter().map(|code| code & largest).collect();
        let (mut packed, mut expected) = (Vec::new(), Vec::new());
        for (codes, groups) in codes.chunks(kind.elements()).zip([&groups[..count], &groups[count..2 * count]]) {
            packed.extend(block(kind, codes, groups, whole));
            expected.extend(meaning(kind, codes, groups, whole));
        }
        prop_assert_eq!(packed.len(), 2 * kind.bytes());
        let (found, codes) = unpacked(kind, &bytes(&packed), 2);
        let found: Vec<f32> = found.read_numbers().unwrap().iter().map(|x| *x as f32).collect();
        prop_assert_eq!(&found, &expected, "{}", kind);
        if let Some((codes, scales)) = codes {
            let (codes, scales) = (codes.read_numbers().unwrap(), scales.read_numbers().unwrap());
            let each = codes.len() / scales.len();
            let product = |(i, code): (usize, &f64)| (code * scales[i / each]) as f32;
            prop_assert_eq!(codes.iter().enumerate().map(product).collect::<Vec<f32>>(), expected);
        }
    }
}

/// Units that do not divide the pieces of a file.
#[test]
fn large_weights_are_streamed_in_pieces() {
    for (kind, largest, count, scale) in KINDS {
        let codes: Vec<u8> = (0..kind.elements()).map(|i| (i * 37 % 256) as u8 & largest).collect();
        let groups: Vec<(u8, u8)> = (0..count).map(|i| ((i * 29) as u8 & scale, (i * 11) as u8 & scale)).collect();
        let one = block(kind, &codes, &groups, [0.01, 0.02]);
        let blocks = 3 * CHUNK_BYTES / kind.bytes() + 1;
        let file = stored(DType::U8, &[blocks * kind.bytes()], [vec![9; 3], one.repeat(blocks)].concat(), 3);
        let (weight, codes_and_scales) = unpacked(kind, &file, blocks);
        let expected: Vec<u8> =
            meaning(kind, &codes, &groups, [0.01, 0.02]).iter().flat_map(|x| x.to_le_bytes()).collect();
        let streamed = pieces(&weight);
        assert!(streamed.len() > 3 && streamed.iter().all(|piece| piece.len() <= CHUNK_BYTES));
        assert!(streamed.concat() == expected.repeat(blocks), "{kind}");
        for part in codes_and_scales.iter().flat_map(|(codes, scales)| [codes, scales]) {
            let bytes = part.read().unwrap();
            let one = bytes.len() / blocks;
            assert!(bytes.chunks(one).all(|piece| piece == &bytes[..one]), "{kind}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let unpack =
        |parts: &[Weight], packing, dtype, shape: &[usize]| Weight::unpack(parts, packing, dtype, shape).is_some();
    let two = words(&[1, 2]);
    let one = std::slice::from_ref(&two);
    assert!(unpack(one, Packing::Words, DType::U4, &[4, 4]));
    assert!(!unpack(one, Packing::Words, DType::U4, &[4, 5]), "the number of codes");
    assert!(!unpack(one, Packing::Words, DType::I4, &[16]), "signed codes");
    assert!(!unpack(one, Packing::Words, DType::F8E4M3FN, &[8]), "floating-point codes");
    assert!(!unpack(&[], Packing::Words, DType::U4, &[0]), "no part");
    assert!(!unpack(&[two.clone(), two.clone()], Packing::Words, DType::U4, &[16]), "two parts");
    assert!(!unpack(&[floats(&[1.0, 2.0])], Packing::Words, DType::U4, &[16]), "words of floats");
    assert!(unpack(one, Packing::Awq, DType::U4, &[16]));
    assert!(!unpack(one, Packing::Awq, DType::U8, &[8]), "8 bits");
    assert!(!unpack(&[bytes(&[0; 8])], Packing::Awq, DType::U4, &[16]), "bytes");

    let q8 = [bytes(&[0; 68])];
    assert!(unpack(&q8, Packing::Codes(GgmlBlock::Q8_0), DType::I8, &[2, 32]));
    assert!(unpack(&q8, Packing::Scales(GgmlBlock::Q8_0), DType::F16, &[2, 1]));
    assert!(!unpack(&q8, Packing::Codes(GgmlBlock::Q8_0), DType::I8, &[65]), "the number of elements");
    assert!(!unpack(&q8, Packing::Scales(GgmlBlock::Q8_0), DType::F32, &[2, 1]), "the type of scales");
    assert!(!unpack(&q8, Packing::Codes(GgmlBlock::Q4_1), DType::I4, &[64]), "a type without codes");
    assert!(!unpack(&[bytes(&[0; 67])], Packing::Numbers(GgmlBlock::Q8_0), DType::F32, &[64]), "part of a block");

    let book = |bits, block| Packing::Codebook { bits, block, offset: Real(0.0) };
    let parts = [bytes(&[0; 4]), floats(&[0.0; 16]), floats(&[1.0, 1.0])];
    assert!(unpack(&parts, book(4, 4), DType::F32, &[8]));
    assert!(!unpack(&parts, book(4, 0), DType::F32, &[8]), "blocks of nothing");
    assert!(!unpack(&parts, book(4, 3), DType::F32, &[8]), "the number of scales");
    assert!(!unpack(&parts, book(8, 2), DType::F32, &[4]), "the size of the table");
    assert!(!unpack(&parts, book(0, 4), DType::F32, &[8]), "no bits");
    assert!(!unpack(&parts, book(4, 4), DType::F16, &[8]), "the type of numbers");
    assert!(!unpack(&parts[..2], book(4, 4), DType::F32, &[8]), "no scales");
}

#[test]
fn the_text_form_has_each_packing() {
    let mut graph = Graph::new("packings");
    let file = |bytes: usize| stored(DType::U8, &[bytes], vec![0; bytes], 0);
    let mut add = |parts: &[Weight], packing: Packing, dtype, shape: &[usize]| {
        let weight = Weight::unpack(parts, packing, dtype, shape).unwrap();
        let same = weight.map(&mut |part| Some(part.clone()));
        assert_eq!(same.as_ref(), Some(&weight));
        assert_eq!((weight.expr().children(), weight.expr().moves_elements()), (parts, false));
        graph.add_weight("w", weight, Origin::Unknown);
    };
    add(&[file(4)], Packing::Words, DType::U4, &[2, 4]);
    add(&[file(4)], Packing::NextWords, DType::U2, &[16]);
    add(&[words(&[5])], Packing::Awq, DType::U4, &[8]);
    let book = Packing::Codebook { bits: 4, block: 4, offset: Real(0.0625) };
    add(&[file(4), floats(&[0.5; 16]), floats(&[1.0, 2.0])], book, DType::F32, &[2, 4]);
    for (kind, ..) in KINDS {
        add(&[file(kind.bytes())], Packing::Numbers(kind), DType::F32, &[1, kind.elements()]);
        if let Some((codes, (scales, each))) = kind.codes().zip(kind.scales()) {
            add(&[file(kind.bytes())], Packing::Codes(kind), codes, &[1, kind.elements()]);
            add(&[file(kind.bytes())], Packing::Scales(kind), scales, &[1, each]);
        }
    }
    let source = graph.to_string();
    assert!(source.contains(": f32[2]], codebook/4/4/0.0625) : f32[2, 4]"), "{source}");
    assert!(
        source.contains("unpack([stored(\"buffer.safetensors\", 0) : u8[210]], codes/q6_k) : i8[1, 256]"),
        "{source}"
    );
    let files: text::Files<'_> = &|_| Ok(std::sync::Arc::new(Buffer(Vec::new())));
    assert_eq!(text::parse(&source, files).unwrap().to_string(), source);

    for (packing, message) in [
        ("words/4", "is not a packing"),
        ("codes/q7_k", "`q7_k` is none of q4_0, q4_1, q5_0, q5_1, q8_0, "),
        ("codebook/x/1/0", "is not a packing"),
    ] {
        let wrong = source.replacen(", words)", &format!(", {packing})"), 1);
        assert!(text::parse(&wrong, files).err().unwrap().message.contains(message), "{packing}");
    }
    let wrong = source.replacen("u4[2, 4]", "u4[2, 5]", 1);
    assert!(text::parse(&wrong, files).err().unwrap().message.contains("does not give"), "{wrong}");
}
